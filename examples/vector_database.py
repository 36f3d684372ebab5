"""Keep vectors in an embedded vector database and search it, with conditions on other columns.

    pip install lancedb
    python examples/vector_database.py
    python examples/vector_database.py my-documents.txt --model my-model --database my-database --query "late delivery"

Without arguments it stores the books that come with mv-st; the first run trains a model on them (books-model).
Prints the nearest sentences in the whole corpus, and in the first ten documents alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import lancedb  # a library and a folder, no server; Arrow inside as in our datasets; released every few weeks
import pyarrow as pa
from sentence_transformers import SentenceTransformer

from mv_st import load_corpus, train

BOOKS = str(files("mv_st") / "data" / "books.txt.xz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", default=[BOOKS], help="your documents (default: the bundled books)")
    parser.add_argument("--model", type=Path, default=Path("books-model"), help="trained if it is not there")
    parser.add_argument("--database", default="books-database", help="folder of the database")
    parser.add_argument("--query", default="The ship sank in the storm.")
    options = parser.parse_args()

    if not options.model.exists():
        train(options.corpus, options.model, minutes=2)
    model = SentenceTransformer(str(options.model))

    corpus = load_corpus(options.corpus)
    schema = pa.schema(
        {
            "sentence": pa.string(),
            "document": pa.int64(),
            "vector": pa.list_(pa.float32(), model.get_embedding_dimension()),
        }
    )

    def batches() -> Iterator[pa.RecordBatch]:
        """Sentences with their vectors, a few thousand at a time: no corpus is too large."""
        for rows in corpus.iter(batch_size=4096):
            vectors = model.encode(rows["sentence"], show_progress_bar=False)
            yield pa.RecordBatch.from_arrays(
                [
                    rows["sentence"],
                    rows["label"],
                    pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1]),
                ],
                schema=schema,
            )

    database = lancedb.connect(options.database)
    database.drop_table("sentences", ignore_missing=True)
    table = database.create_table("sentences", batches(), schema=schema)
    print(f"{table.count_rows():,} vectors are in {options.database}")
    # Up to some hundred thousand rows a plain scan is fast enough; beyond that: table.create_index(metric="cosine").

    search = table.search(model.encode(options.query)).distance_type("cosine").limit(3)
    show(f"{options.query} (all documents)", search.to_list())
    show(f"{options.query} (the first ten documents)", search.where("document < 10").to_list())


def show(title: str, hits: list[dict[str, Any]]) -> None:
    print(f"\n{title}")
    for hit in hits:
        print(f"  {1 - hit['_distance']:.2f}  document {hit['document']}: {hit['sentence']}")


if __name__ == "__main__":
    main()
