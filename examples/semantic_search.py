"""Search a folder of text files by meaning, with a model that has learnt from these very files.

    python examples/semantic_search.py
    python examples/semantic_search.py notes/ --query "who pays for repairs" --top 5

Without a folder it searches the chapters of the books that come with mv-st. The first run trains a model on the
folder and keeps it beside it (notes-model); later runs find it there. Prints score, file and sentence for each
query.
"""

from __future__ import annotations

import argparse
import lzma
import tempfile
from importlib.resources import files
from pathlib import Path

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import semantic_search

from mv_st import train
from mv_st.sentence_splitting import split_sentences

BOOKS = str(files("mv_st") / "data" / "books.txt.xz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="folder of .txt files (default: the bundled books)")
    parser.add_argument("--model", type=Path, help="folder of the model, trained if it is not there")
    parser.add_argument("--language", help="of the files, such as de; it decides where sentences end")
    parser.add_argument("--minutes", type=float, default=2.0, help="time for training (default: %(default)s)")
    parser.add_argument("--query", action="append", help="what to look for; may be given several times")
    parser.add_argument("--top", type=int, default=3, help="results per query (default: %(default)s)")
    options = parser.parse_args()
    queries = options.query or ["a storm at sea", "Where was the body found?", "a child in a garden"]

    folder = options.folder or write_chapters(Path(tempfile.mkdtemp()) / "books")
    paths = sorted(folder.rglob("*.txt"))
    sentences, numbers = [], []
    for number, path in enumerate(paths):
        found = split_sentences(path.read_text(encoding="utf-8"), options.language)
        sentences += found
        numbers += [number] * len(found)  # the document of each sentence
    print(f"{len(sentences):,} sentences in {len(paths):,} files of {folder}")

    model_folder = options.model or Path(f"{folder.resolve().name}-model")
    if model_folder.exists():
        model = SentenceTransformer(str(model_folder))
    else:
        corpus = Dataset.from_dict({"sentence": sentences, "label": numbers})
        model = train(corpus, model_folder, minutes=options.minutes)

    vectors = model.encode(sentences, show_progress_bar=True)
    for query, hits in zip(queries, semantic_search(model.encode(queries), vectors, top_k=options.top), strict=True):
        print(f"\n{query}")
        for hit in hits:
            row = hit["corpus_id"]
            print(f"  {hit['score']:.2f}  {paths[numbers[row]].relative_to(folder)}: {sentences[row]}")


def write_chapters(folder: Path) -> Path:
    """The bundled books as a folder of text files, one per chapter."""
    folder.mkdir(parents=True)
    with lzma.open(BOOKS, "rt", encoding="utf-8") as file:
        for number, chapter in enumerate(file.read().split("\n\n"), start=1):
            # One sentence per line there; here, as in most files, an empty line ends a paragraph.
            (folder / f"chapter-{number:03}.txt").write_text(chapter.replace("\n", "\n\n"), encoding="utf-8")
    return folder


if __name__ == "__main__":
    main()
