"""Train through `model.fit`, for code that is built around it.

    python examples/train_with_model_fit.py
    python examples/train_with_model_fit.py my-documents.txt --output my-model --steps 5000

`fit` shuffles rows, and the method needs sentences in their order: so each row is a window of seven consecutive
sentences. Prints how often an unseen sentence finds the one that follows it among 1,000 others, before and after
training.
"""

from __future__ import annotations

import argparse
from importlib.resources import files

from sentence_transformers import SentenceTransformer
from torch.utils.data import DataLoader

from mv_st import MultiViewLoss, build_model, fit_components, load_corpus, train_vectors, window_dataset
from mv_st.demo import neighbour_recall

BOOKS = str(files("mv_st") / "data" / "books.txt.xz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", default=[BOOKS], help="your documents (default: the bundled books)")
    parser.add_argument("--output", default="fit-model", help="folder of the model")
    parser.add_argument("--steps", type=int, default=300, help="batches to train on (default: %(default)s)")
    parser.add_argument("--hidden-size", type=int, default=128, help="d (default: %(default)s)")
    options = parser.parse_args()

    corpus = load_corpus(options.corpus)
    held_out = min(1000, len(corpus) // 5)
    seen = corpus.select(range(len(corpus) - held_out))
    sentences = list(seen["sentence"])
    unseen = list(corpus.select(range(len(seen), len(corpus)))["sentence"])

    # Subwords give a vector to words that the corpus does not have.
    model = build_model(
        train_vectors(seen, dim=100, epochs=3),
        hidden_size=options.hidden_size,
        oov="subword",
        train_on="mean",
        temperature=0.2,
        whitening=0.5,
        seed=0,
    )
    report("before", fit_components(model, sentences), unseen)

    loader = DataLoader(window_dataset(seen), batch_size=64, shuffle=True, drop_last=True)
    model.fit(
        train_objectives=[(loader, MultiViewLoss(model))],
        epochs=1,
        steps_per_epoch=options.steps,
        # The defaults of fit are for fine-tuning: a new GRU would learn nothing with them.
        optimizer_params={"lr": 5e-4},
        scheduler="constantlr",
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=5.0,
    )
    # What is removed at inference depends on the weights: estimate it again, after training.
    report("after", fit_components(model, sentences), unseen)
    model.save_pretrained(options.output)
    print(f"The model is in {options.output}.")


def report(when: str, model: SentenceTransformer, unseen: list[str]) -> None:
    first, ten = neighbour_recall(model.encode(unseen, show_progress_bar=False))
    print(f"{when:6} training: the next sentence is found first {first:.1%}, among ten {ten:.1%}")


if __name__ == "__main__":
    main()
