r"""Take the model that comes along, adapt it, or train one? What each is worth on text that no model has seen.

    python benchmarks/own_text.py news.txt.xz reviews.txt.xz --vectors glove.vec.gz --models-dir runs --minutes 3

No labels are needed for the measure: how often one of 1,000 sentences, which follow each other in the text, finds the
sentence after it among the others, first or among the first ten. It is the mean of several such runs of sentences, the
last of the text. Models are trained on the sentences before these, as many as a folder of documents may have, and
adapted to a sample of them.

Components of averaged vectors are those of the sentences that are scored. all-MiniLM-L6-v2, a transformer trained on
a billion pairs, is there for comparison (`pip install "mv-st[benchmarks]"`). A model in --models-dir is not trained
again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from encoding_peers import MINILM
from reporting import printed_command, write_results
from sentence_transformers import SentenceTransformer

import mv_st
from mv_st.demo import averaged_vectors, neighbour_recall
from mv_st.evaluation.tables import markdown_table
from mv_st.preparation import sample_sentences

SENTENCES_PER_RUN = 1_000
RUNS = 5
OWN_SENTENCES = 5_000
"""To which models are adapted."""

Encode = Callable[[list[str]], np.ndarray]


def encoders(seen: Any, corpus: str, options: argparse.Namespace) -> dict[str, Callable[[], Encode]]:
    """The contestants, each made when it is its turn."""
    own = sample_sentences(seen, OWN_SENTENCES, options.seed)
    genre = Path(corpus).name.split(".")[0]

    def trained(vectors: str | None) -> SentenceTransformer:
        folder: Path = options.models_dir / f"{options.preset}-{genre}-unseen{'' if vectors else '-raw'}"
        if not folder.exists():
            print(f"training {folder.name}", file=sys.stderr)
            mv_st.train(
                seen, folder, vectors=vectors, preset=options.preset, minutes=options.minutes, seed=options.seed
            )
        return SentenceTransformer(str(folder))

    def adapted(model: SentenceTransformer) -> SentenceTransformer:
        return mv_st.adapt_components(model, own)

    def by(model: SentenceTransformer) -> Encode:
        return lambda sentences: model.encode(sentences, show_progress_bar=False)

    def averages() -> Encode:
        vectors = mv_st.load_vectors(options.vectors)
        return lambda sentences: averaged_vectors(vectors, sentences)

    return {
        "averaged word vectors": averages,
        "the model that comes along": lambda: by(mv_st.load_shipped_model()),
        "the same, adapted": lambda: by(adapted(mv_st.load_shipped_model())),
        "trained on this text alone": lambda: by(trained(None)),
        "trained on this text, with these word vectors": lambda: by(trained(options.vectors)),
        "the same, adapted to it": lambda: by(adapted(trained(options.vectors))),
        "all-MiniLM-L6-v2": lambda: by(SentenceTransformer(MINILM, device="cpu")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS")
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--models-dir", type=Path, required=True, help="where the trained models go")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--minutes", type=float, default=3.0, help="time of each training run")
    parser.add_argument("--sentences", type=int, default=200_000, help="to train on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    recalls: dict[str, dict[str, tuple[float, float]]] = {}
    for corpus in options.corpora:
        sentences = mv_st.load_corpus(corpus)
        end = len(sentences) - RUNS * SENTENCES_PER_RUN
        seen = sentences.select(range(max(0, end - options.sentences), end))
        unseen = list(sentences.select(range(end, len(sentences)))["sentence"])
        runs = [unseen[start : start + SENTENCES_PER_RUN] for start in range(0, len(unseen), SENTENCES_PER_RUN)]
        for name, make in encoders(seen, corpus, options).items():
            print(f"{Path(corpus).name}: {name}", file=sys.stderr)
            encode = make()
            found = np.mean([neighbour_recall(encode(run)) for run in runs], axis=0)
            recalls.setdefault(name, {})[Path(corpus).name.split(".")[0]] = (float(found[0]), float(found[1]))
    genres = list(next(iter(recalls.values())))
    rows = [
        [name, *(f"{100 * value:.1f}" for genre in genres for value in by_genre[genre])]
        for name, by_genre in recalls.items()
    ]
    text = [
        "# A text of one's own",
        "",
        f"How often one of {SENTENCES_PER_RUN:,} sentences finds the one that follows it in the text among the "
        f"others, per cent: first, and among the first ten. Mean of {RUNS} runs of sentences that none of our models "
        f"has seen. Trained on {options.sentences:,} other sentences of the text with the preset `{options.preset}`, "
        f"{options.minutes:g} minutes on {torch.get_num_threads()} thread(s) after the preparation, and adapted to "
        f"{OWN_SENTENCES:,} of them.",
        "",
        markdown_table(["", *(f"{genre}, {what}" for genre in genres for what in ("first", "ten"))], rows),
    ]
    write_results("own_text", {"command": printed_command(), "seed": options.seed, "recall": recalls}, text)


if __name__ == "__main__":
    main()
