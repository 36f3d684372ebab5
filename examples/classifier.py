"""Train a classifier on the transfer representation with scikit-learn.

    python examples/classifier.py
    python examples/classifier.py --csv reviews.csv --model my-model

Without --csv the task is made from the books that come with mv-st: is a sentence spoken by somebody or told by the
narrator, once its quotation marks are gone? The first run trains a model on them (books-model). A CSV file has the
columns text and label. Prints the accuracy on a fifth of the sentences that was kept back, for both
representations.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections import Counter
from importlib.resources import files
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from mv_st import load_corpus, train

BOOKS = str(files("mv_st") / "data" / "books.txt.xz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="file with the columns text and label")
    parser.add_argument("--model", type=Path, default=Path("books-model"), help="trained if it is not there")
    parser.add_argument("--limit", type=int, default=5000, help="most examples to use (default: %(default)s)")
    options = parser.parse_args()

    if not options.model.exists():
        train(BOOKS, options.model, minutes=2)
    model = SentenceTransformer(str(options.model))

    examples = read_csv(options.csv) if options.csv else spoken_or_told()
    examples = random.Random(0).sample(examples, min(options.limit, len(examples)))
    texts, labels = zip(*examples, strict=True)
    print(f"{len(texts):,} examples: {dict(Counter(labels))}")

    for representation in ("similarity", "transfer"):
        features = model.encode(list(texts), representation=representation, show_progress_bar=False)
        x_train, x_test, y_train, y_test = train_test_split(
            features, labels, test_size=0.2, stratify=labels, random_state=0
        )
        accuracy = LogisticRegression(max_iter=1000).fit(x_train, y_train).score(x_test, y_test)
        print(f"{representation:10}  {features.shape[1]:5} features  {accuracy:6.1%} right")


def spoken_or_told() -> list[tuple[str, str]]:
    """Sentences of the bundled books that are a quotation from end to end, and as many without any quotation mark."""
    sentences = load_corpus(BOOKS)["sentence"]
    spoken = [sentence.replace('"', "") for sentence in sentences if sentence[0] == '"' == sentence[-1]]
    told = random.Random(0).sample([sentence for sentence in sentences if '"' not in sentence], len(spoken))
    return [(text, "spoken") for text in spoken] + [(text, "told") for text in told]


def read_csv(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["label"]) for row in csv.DictReader(file)]


if __name__ == "__main__":
    main()
