"""Train one row of the paper's ablation and compare its views.

    python examples/ablation_row.py                                              # the paper's model
    python examples/ablation_row.py --row within --minutes 30 --corpus my-documents.txt --vectors glove.vec.gz

Everything but the row, the size and the length of training is as in the paper. Prints for each view and for both
together how often an unseen sentence finds the one that follows it among the 1,000 last of the corpus, and what the
paper reports for that row on STS12-16 (BookCorpus). All rows with their real scores: benchmarks/ablation.py.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from mv_st import load_corpus, train, train_vectors
from mv_st.demo import neighbour_recall

BOOKS = str(files("mv_st") / "data" / "books.txt.xz")
# What is trained, and the paper's Pearson's r x 100 (ablation on BookCorpus) for each view and for all together.
ROWS = {
    "cross": ({"views": "gru,linear", "agreement": "cross"}, [64.4, 68.7, 68.9]),
    "all": ({"views": "gru,linear", "agreement": "all"}, [61.3, 68.2, 64.5]),
    "within": ({"views": "gru,linear", "agreement": "within"}, [52.9, 67.8, 64.6]),
    "two-gru": ({"views": "gru,gru", "agreement": "cross"}, [62.3, None, 63.1]),
    "two-linear": ({"views": "linear,linear", "agreement": "cross"}, [68.2, None, 69.0]),
    "gru": ({"views": "gru"}, [60.9]),
    "linear": ({"views": "linear"}, [68.7]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", choices=ROWS, default="cross")
    parser.add_argument("--corpus", nargs="+", default=[BOOKS], help="ordered text (default: the bundled books)")
    parser.add_argument("--vectors", help="word vectors; left out, they are trained on the corpus")
    parser.add_argument("--hidden-size", type=int, default=128, help="d, 1024 in the paper (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=2.0, help="time for training (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="folder of the model (default: ablation-ROW)")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier model")
    options = parser.parse_args()
    settings, printed = ROWS[options.row]

    corpus = load_corpus(options.corpus)
    held_out = min(1000, len(corpus) // 5)
    seen = corpus.select(range(len(corpus) - held_out))
    unseen = list(corpus.select(range(len(seen), len(corpus)))["sentence"])
    model = train(
        seen,
        options.output or Path(f"ablation-{options.row}"),
        vectors=options.vectors or train_vectors(seen, dim=100),
        preset="paper",
        hidden_size=options.hidden_size,
        minutes=options.minutes,
        overwrite=options.overwrite,
        **settings,
    )

    print(f"\n{options.row}: {settings}")
    print("                next sentence found first   among ten   paper, STS12-16")
    views = list(model[-1].views)
    for view, score in zip([*views, None] if len(views) > 1 else views, printed, strict=True):
        first, ten = neighbour_recall(model.encode(unseen, view=view, show_progress_bar=False))
        print(f"{view or 'all views':14}  {first:25.1%}   {ten:9.1%}   {score or '':>15}")


if __name__ == "__main__":
    main()
