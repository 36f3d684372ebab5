"""Similarity scores while a model is being trained."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers.base.evaluation import BaseEvaluator

from mv_st.errors import UserError

from .data import check_data_dir, find_file, read_rows
from .encoder import has_component_removal
from .rng import preserved_rng_state
from .scores import correlate, paired_cosines

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)


class STSEvaluator(BaseEvaluator):
    """Pearson and Spearman correlation on the validation split of STS-B, for the trainer to call.

    Scores an mv_st model as a user would get it: with stored components, which are first fitted anew on a sample of
    sentences. Gives the scores of the whole model and, from the same forward pass, of each view. The mode of the model
    and the random numbers of the training run are left as they were.

    Args:
        data: Folder with `stsbenchmark/validation.jsonl[.gz]`, or a list of pairs with their scores.
        fit_sentences: Sentences of the training corpus to fit the stored components on; not fitted if not given.
        n_components: How many to fit.
        name: Prefix of the names of the scores.
        batch_size: Sentences per forward pass, for models that are not ours.

    Example:
        >>> from mv_st import build_model
        >>> words = ["red", "green", "blue", "sky", "grass"]
        >>> model = build_model((words, np.random.default_rng(0).normal(size=(5, 4))), hidden_size=3, seed=0)
        >>> pairs = [("red sky", "red sky", 5.0), ("green grass", "blue sky", 1.0), ("red sky", "red grass", 2.5)]
        >>> evaluator = STSEvaluator(pairs, fit_sentences=["red sky", "green grass", "blue sky", "red grass"])
        >>> sorted(evaluator(model))[:3]
        ['stsb-validation_gru_pearson', 'stsb-validation_gru_spearman', 'stsb-validation_linear_pearson']
    """

    def __init__(
        self,
        data: str | Path | Sequence[tuple[str, str, float]],
        fit_sentences: Sequence[str] | None = None,
        n_components: int = 1,
        name: str = "stsb-validation",
        batch_size: int = 256,
    ) -> None:
        super().__init__()
        pairs = _read_pairs(data) if isinstance(data, str | Path) else list(data)
        if len(pairs) < 2:
            raise UserError(f"{name}: needs at least two pairs of sentences, got {len(pairs)}")
        self.gold = [float(score) for _, _, score in pairs]
        sides = [left for left, _, _ in pairs], [right for _, right, _ in pairs]
        self.sentences = sorted({*sides[0], *sides[1]})
        row = {sentence: index for index, sentence in enumerate(self.sentences)}
        self.left, self.right = (np.array([row[sentence] for sentence in side]) for side in sides)
        self.fit_sentences = fit_sentences
        self.n_components = n_components
        self.name = name
        self.batch_size = batch_size
        self.primary_metric = "pearson"

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Score the model. Nothing is written to `output_path`; the trainer logs what is returned."""
        with preserved_rng_state(), _preserved_mode(model):
            metrics: dict[str, float] = {}
            for view, vectors in self._vectors(model).items():
                prefix = f"{view}_" if view else ""
                metrics |= self._scores(vectors, prefix)
        metrics = self.prefix_name_to_metrics(metrics, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says about the evaluator."""
        return {"n_components": self.n_components} if self.fit_sentences is not None else {}

    def _vectors(self, model: SentenceTransformer) -> dict[str, NDArray[np.float32]]:
        """Vectors of all sentences: by view, and of the whole model under the empty name."""
        if not has_component_removal(model):
            return {"": model.encode(self.sentences, batch_size=self.batch_size, show_progress_bar=False)}
        from mv_st.components import fit_components, removal_module, view_vectors
        from mv_st.modules.view import unit_length

        removal = removal_module(model)
        if self.fit_sentences is not None:
            # Transfer features are wide and not used here; they are fitted too only if their number must change.
            kinds = ("similarity",) if removal.n_components == self.n_components else ("similarity", "transfer")
            fit_components(model, self.fit_sentences, self.n_components, representations=kinds)
        normalized = {
            name: unit_length(removal.clean(vectors, name)).float().cpu().numpy()
            for name, vectors in view_vectors(model, self.sentences).items()
        }
        whole = np.sum(list(normalized.values()), axis=0)
        return {"": whole} | (normalized if len(normalized) > 1 else {})

    def _scores(self, vectors: NDArray[np.float32], prefix: str) -> dict[str, float]:
        try:
            score = correlate(self.gold, paired_cosines(vectors[self.left], vectors[self.right]))
        except UserError as error:  # a model that has collapsed: training should go on and show it
            logger.warning("%s %s: %s", self.name, prefix, error)
            return {f"{prefix}pearson": 0.0, f"{prefix}spearman": 0.0}
        return {f"{prefix}pearson": score.pearson, f"{prefix}spearman": score.spearman}


def _read_pairs(data_dir: str | Path) -> list[tuple[str, str, float]]:
    folder = check_data_dir(data_dir) / "stsbenchmark"
    path = find_file(folder, "validation")
    if path is None:
        raise UserError(f"no validation.jsonl[.gz] in {folder}: evaluation during training needs STS-B")
    rows = read_rows(path, {"sentence1": "text", "sentence2": "text", "score": "number"})
    return list(zip(rows["sentence1"], rows["sentence2"], rows["score"], strict=True))


@contextmanager
def _preserved_mode(model: SentenceTransformer) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
