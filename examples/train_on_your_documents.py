"""Train a model on your own documents and look at what it finds in them.

    python examples/train_on_your_documents.py
    python examples/train_on_your_documents.py my-documents.txt --output my-model --minutes 20 --query "late delivery"

Without arguments it trains on the books that come with mv-st. A corpus is one or more .txt files (one sentence per
line, an empty line between documents), .jsonl, .parquet, hf:dataset-id or folders of these. Prints how the loss
fell and, for each query, the three nearest sentences of the corpus.
"""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path

from sentence_transformers.util import semantic_search

from mv_st import load_corpus, train

BOOKS = str(files("mv_st") / "data" / "books.txt.xz")
QUERIES = ["The ship sank in the storm.", "She was very angry with him.", "They had nothing to eat."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", default=[BOOKS], help="your documents (default: the bundled books)")
    parser.add_argument("--output", type=Path, default=Path("books-model"), help="folder of the model")
    parser.add_argument("--vectors", help="word vectors; left out, they are trained on the corpus")
    parser.add_argument("--preset", default="small", help="small, base, features or paper")
    parser.add_argument("--minutes", type=float, default=2.0, help="time for training (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier model")
    parser.add_argument("--query", action="append", help="what to look for; may be given several times")
    options = parser.parse_args()

    model = train(
        options.corpus,
        options.output,
        vectors=options.vectors,
        preset=options.preset,
        minutes=options.minutes,
        overwrite=options.overwrite,
    )

    record = json.loads((options.output / "training.json").read_text(encoding="utf-8"))
    losses = [entry["loss"] for entry in record["history"] if "loss" in entry]
    print(f"\n{record['corpus']['sentences']:,} sentences, {record['steps']:,} batches; ", end="")
    print(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at last" if losses else "too short a run to log its loss")

    sentences = list(dict.fromkeys(load_corpus(options.corpus)["sentence"]))
    queries = options.query or QUERIES
    vectors = model.encode(sentences, show_progress_bar=True)
    for query, hits in zip(queries, semantic_search(model.encode(queries), vectors, top_k=3), strict=True):
        print(f"\n{query}")
        for hit in hits:
            print(f"  {hit['score']:.2f}  {sentences[hit['corpus_id']]}")
    print(f'\nThe model is in {options.output}: import mv_st; SentenceTransformer("{options.output}")')


if __name__ == "__main__":
    main()
