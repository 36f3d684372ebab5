"""A language other than English from raw text alone: no labels, no pretrained model, no word vectors.

    python examples/another_language.py
    python examples/another_language.py mon-corpus.txt --output mon-modele --query "le navire a coulé"

Without arguments it learns German from 5,805 sentences of software documentation (examples/data). Any language with
spaces between words works in the same way; the more text, the better. Prints the nearest sentences to each query,
also to one with a word that the text does not have: its vector is put together from its parts, which matters where
words are compounded.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from sentence_transformers.util import semantic_search

from mv_st import load_corpus, train, train_vectors

GERMAN = str(Path(__file__).parent / "data" / "german.txt.xz")
QUERIES = ["Mehrere Prozesse auf einem Server", "Das Passwort ist falsch.", "Passwortprüfung"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", default=[GERMAN], help="ordered text (default: German documentation)")
    parser.add_argument("--output", default="german-model", help="folder of the model")
    parser.add_argument("--language", help="only for .jsonl, .parquet and hf: corpora, which are split into sentences")
    parser.add_argument("--minutes", type=float, default=1.0, help="time for training (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier model")
    parser.add_argument("--query", action="append", help="what to look for; may be given several times")
    options = parser.parse_args()

    corpus = load_corpus(options.corpus, language=options.language)
    model = train(
        corpus,
        options.output,
        # Little text: more passes over it, and smaller batches so that a pass has more than a handful of them.
        vectors=train_vectors(corpus, dim=100, epochs=20),
        batch_size=128,
        minutes=options.minutes,
        overwrite=options.overwrite,
    )

    sentences = list(dict.fromkeys(corpus["sentence"]))
    vocabulary = model.tokenizer.get_vocab()
    queries = options.query or QUERIES
    vectors = model.encode(sentences, show_progress_bar=True)
    for query, hits in zip(queries, semantic_search(model.encode(queries), vectors, top_k=3), strict=True):
        words = re.findall(r"\w+", query)
        new = [word for word in words if not {word, word.lower()} & vocabulary.keys()]
        print(f"\n{query}" + (f"   (not in the vocabulary: {', '.join(new)})" if new else ""))
        for hit in hits:
            print(f"  {hit['score']:.2f}  {sentences[hit['corpus_id']]}")


if __name__ == "__main__":
    main()
