"""Cluster documents by meaning and name each cluster by the words that set it apart.

    python examples/cluster_and_name_topics.py
    python examples/cluster_and_name_topics.py my-documents.txt --model my-model --topics 20

Without arguments it clusters the chapters of the books that come with mv-st; the first run trains a model on them
(books-model). A document is what stands between two empty lines, see train_on_your_documents.py for other forms.
Prints for each topic its number of documents, its words, and the sentence that is nearest to its centre.
"""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from mv_st import load_corpus, train

BOOKS = str(files("mv_st") / "data" / "books.txt.xz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", default=[BOOKS], help="your documents (default: the bundled books)")
    parser.add_argument("--model", type=Path, default=Path("books-model"), help="trained if it is not there")
    parser.add_argument("--topics", type=int, default=14, help="number of clusters (default: %(default)s)")
    options = parser.parse_args()

    if not options.model.exists():
        train(options.corpus, options.model, minutes=2)
    model = SentenceTransformer(str(options.model))

    corpus = load_corpus(options.corpus)
    sentences, document_of = list(corpus["sentence"]), np.array(corpus["label"])
    documents = [" ".join(part) for part in np.split(np.array(sentences, dtype=object), starts(document_of))]
    print(f"{len(sentences):,} sentences in {len(documents):,} documents")

    # A document is the mean of its sentences.
    vectors = model.encode(sentences, normalize_embeddings=True, show_progress_bar=True)
    means = normalize(np.add.reduceat(vectors, [0, *starts(document_of)]))
    topics = KMeans(options.topics, n_init=10, random_state=0).fit(means)
    topic_of = topics.labels_

    # Words of more than a third of the documents say nothing about a topic, in any language.
    tfidf = TfidfVectorizer(
        max_df=0.33, min_df=min(3, len(documents)), sublinear_tf=True, token_pattern=r"[^\W\d_]{3,}"
    )
    weights = tfidf.fit_transform(documents)
    words = tfidf.get_feature_names_out()
    for topic in np.argsort(-np.bincount(topic_of)):  # the largest first
        inside = topic_of == topic
        distinct = np.asarray(weights[inside].mean(axis=0) - weights.mean(axis=0)).ravel()
        names = ", ".join(words[i] for i in np.argsort(-distinct)[:8])
        candidates = np.flatnonzero(inside[document_of])
        central = candidates[np.argmax(vectors[candidates] @ topics.cluster_centers_[topic])]
        print(f"\n{inside.sum()} documents: {names}\n  {sentences[central]}")


def starts(document_of: np.ndarray) -> np.ndarray:
    """Rows at which the second and all later documents begin."""
    return np.flatnonzero(np.diff(document_of)) + 1


if __name__ == "__main__":
    main()
