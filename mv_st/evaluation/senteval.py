"""Transfer tasks: a logistic regression on frozen vectors, by SentEval's protocols.

A further task is a class of a few lines; this one reads `DATA_DIR/urgency/all.jsonl` with rows like
`{"text": "...", "label": "high"}`:

```python
from mv_st.evaluation import ClassificationTask, evaluate

class Urgency(ClassificationTask):
    task_name = "urgency"

evaluate("my-model", "data", tasks=["mr", Urgency]).to_markdown()
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from mv_st.errors import UserError

from .data import Columns, HubSplit
from .protocols import (
    Outcome,
    cross_validation_then_test,
    nested_cross_validation,
    relatedness,
    validation_then_test,
)
from .results import TransferScores
from .scores import correlate
from .task import FileTask

if TYPE_CHECKING:
    from mteb.models import MTEBModels
    from mteb.results import TaskResult

Protocol = Literal["nested", "train-test", "train-validation-test"]

SPLITS: dict[str, tuple[str, ...]] = {
    "nested": ("all",),
    "train-test": ("train", "test"),
    "train-validation-test": ("train", "validation", "test"),
}
IN_WORDS = {
    "nested": "stratified 10-fold, C by inner 10-fold",
    "train-test": "C by 10-fold on train, then test",
    "train-validation-test": "C on validation, then test",
}


class TransferTask(FileTask):
    """What supervised tasks share: the files of their splits, the features, the shape of the scores.

    Attributes:
        protocol: `"nested"` (file `all`), `"train-test"` or `"train-validation-test"` (files of these names).
    """

    protocol: ClassVar[Protocol] = "nested"

    @property
    def is_pair_task(self) -> bool:
        """Whether a row has two sentences."""
        return "sentence2" in self.columns

    def find_parts(self) -> list[str]:
        """The splits; all of them are needed."""
        wanted = SPLITS[self.protocol]
        here = self.hub if self.data_dir is None else [part for part in wanted if self.find_part(part)]
        absent = [part for part in wanted if part not in here]
        if absent:
            raise self.not_found(absent)
        return list(wanted)

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Read the splits."""
        if self.data_loaded:
            return
        splits = {part: Dataset.from_dict(self.read_part(part)) for part in self.parts}
        # mteb looks for the split it evaluates; with cross-validation that is all of the data.
        splits.setdefault("test", splits[self.parts[-1]])
        self.dataset = {"default": splits}
        self.data_loaded = True

    def collect(self, result: TaskResult) -> TransferScores:
        """The typed scores of a finished run."""
        row = result.scores["test"][0]
        names = TransferScores.__dataclass_fields__
        return TransferScores(**{name: row[name] for name in names})

    def features(self, model: MTEBModels, **encode_kwargs: Any) -> dict[str, NDArray[np.float32]]:
        """Features of every split: the vector, or [|u - v|, u * v] for pairs."""
        splits = self._splits()
        texts = ("sentence1", "sentence2") if self.is_pair_task else ("text",)
        groups = [splits[part][text] for part in self.parts for text in texts]
        vectors = self.encode(model, groups, "transfer", **encode_kwargs)
        if not self.is_pair_task:
            return dict(zip(self.parts, vectors, strict=True))
        return {part: pair_features(vectors[2 * i], vectors[2 * i + 1]) for i, part in enumerate(self.parts)}

    def _splits(self) -> dict[str, Columns]:
        assert self.dataset is not None
        splits = self.dataset["default"]
        return {part: splits[part][:] for part in self.parts}

    def _evaluate_subset(self, model: MTEBModels, data_split: Dataset, *, encode_kwargs: Any, **kwargs: Any) -> Any:
        features = self.features(model, **encode_kwargs)
        scores = {"f1": None, "accuracy": None, "pearson": None, "spearman": None}
        outcome = self.run_protocol(features, scores)
        return {
            **scores,
            "protocol": IN_WORDS[self.protocol],
            "dev_score": outcome.dev_score,
            "regularization": outcome.strengths,
            "n_test": len(outcome.predictions),
            "width": next(iter(features.values())).shape[1],
        }

    def run_protocol(self, features: dict[str, NDArray[np.float32]], scores: dict[str, Any]) -> Outcome:
        """Train and test; enter what was measured into `scores`."""
        raise NotImplementedError


class ClassificationTask(TransferTask):
    """Classification of single sentences; of pairs, if `columns` has `sentence1` and `sentence2`.

    Attributes:
        label_column: Column of the labels: whole numbers or strings.
        positive_label: Report the F1 score of this label too.
    """

    columns = {"text": "text", "label": "label"}
    kind = "Classification"
    main_score = "accuracy"
    label_column: ClassVar[str] = "label"
    positive_label: ClassVar[int | str | None] = None

    def run_protocol(self, features: dict[str, NDArray[np.float32]], scores: dict[str, Any]) -> Outcome:
        """Accuracy, and F1 where it is asked for."""
        names, labels = self._label_ids()
        data = {part: (features[part], labels[part]) for part in self.parts}
        if self.protocol == "nested":
            outcome = nested_cross_validation(*data["all"], self.seed)
        elif self.protocol == "train-test":
            outcome = cross_validation_then_test(data["train"], data["test"], self.seed)
        else:
            outcome = validation_then_test(data["train"], data["validation"], data["test"])
        scores["accuracy"] = outcome.test_score
        if self.positive_label is not None:
            from sklearn.metrics import f1_score

            positive = names.index(self.positive_label)
            scores["f1"] = float(f1_score(labels[self.parts[-1]] == positive, outcome.predictions == positive))
        return outcome

    def _label_ids(self) -> tuple[list[Any], dict[str, NDArray[np.int64]]]:
        raw = {part: columns[self.label_column] for part, columns in self._splits().items()}
        names = sorted(set(raw[self.parts[0]]), key=str)
        ids = {name: index for index, name in enumerate(names)}
        for part, labels in raw.items():
            unknown = sorted({str(label) for label in labels if label not in ids})
            if unknown:
                raise UserError(f"{part} has labels that {self.parts[0]} does not have: {', '.join(unknown)}")
        return names, {part: np.array([ids[label] for label in labels]) for part, labels in raw.items()}


class RelatednessTask(TransferTask):
    """Supervised prediction of a score between 0 or 1 and 5 for pairs of sentences.

    Attributes:
        lowest_score: Score of the first of the five bins. SentEval takes 1 for both of its tasks, so that scores below
            1, which STS-B has, count as 1 in training.
    """

    columns = {"sentence1": "text", "sentence2": "text", "score": "number"}
    kind = "Regression"
    main_score = "pearson"
    protocol = "train-validation-test"
    lowest_score: ClassVar[float] = 1.0

    def run_protocol(self, features: dict[str, NDArray[np.float32]], scores: dict[str, Any]) -> Outcome:
        """Pearson's r and Spearman's rho of the expected scores."""
        gold = {part: np.asarray(columns["score"]) for part, columns in self._splits().items()}
        train, validation, test = ((features[part], gold[part]) for part in self.parts)
        outcome = relatedness((train[0], np.maximum(train[1], self.lowest_score)), validation, test, self.lowest_score)
        correlation = correlate(test[1], outcome.predictions)
        scores.update(pearson=correlation.pearson, spearman=correlation.spearman)
        return outcome


def pair_features(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """[|u - v|, u * v] for each pair of rows, shape (n, 2 d).

    Example:
        >>> pair_features(np.array([[1.0, 2.0]], dtype=np.float32), np.array([[3.0, 2.0]], dtype=np.float32))
        array([[2., 0., 3., 4.]], dtype=float32)
    """
    width = left.shape[1]
    features = np.empty((len(left), 2 * width), dtype=np.float32)
    np.abs(left - right, out=features[:, :width])
    np.multiply(left, right, out=features[:, width:])
    return features


class MR(ClassificationTask):
    """Movie reviews, positive or negative (Pang & Lee 2005)."""

    task_name = "mr"
    title = "MR"
    hub = {
        "all": [
            HubSplit("cornell-movie-review-data/rotten_tomatoes", split) for split in ("train", "validation", "test")
        ]
    }


class CR(ClassificationTask):
    """Customer reviews of products, positive or negative (Hu & Liu 2004)."""

    task_name = "cr"
    title = "CR"
    hub = {"all": [HubSplit("SetFit/SentEval-CR", split) for split in ("train", "test")]}


class SUBJ(ClassificationTask):
    """Subjective or objective sentences (Pang & Lee 2004)."""

    task_name = "subj"
    title = "SUBJ"
    hub = {"all": [HubSplit("SetFit/subj", split) for split in ("train", "test")]}


class MPQA(ClassificationTask):
    """Polarity of opinions, phrases (Wiebe et al. 2005)."""

    task_name = "mpqa"
    title = "MPQA"
    hub = {"all": [HubSplit("jxm/mpqa", split, rename={"text": "sentence"}) for split in ("train", "dev", "test")]}


class SST2(ClassificationTask):
    """Stanford sentiment treebank, two classes, trained on its 67 thousand phrases (Socher et al. 2013)."""

    task_name = "sst2"
    title = "SST-2"
    protocol = "train-validation-test"
    hub = {
        "train": [HubSplit("stanfordnlp/sst2", "train", rename={"text": "sentence"})],
        "validation": [HubSplit("stanfordnlp/sst2", "validation", rename={"text": "sentence"})],
        "test": [HubSplit("SetFit/sst2", "test")],  # the other copy has no test labels
    }


class TREC(ClassificationTask):
    """Questions by the type of their answer, six classes (Li & Roth 2002)."""

    task_name = "trec"
    title = "TREC"
    protocol = "train-test"
    hub = {
        split: [HubSplit("CogComp/trec", split, revision="refs/convert/parquet", rename={"label": "coarse_label"})]
        for split in ("train", "test")
    }


class MRPC(ClassificationTask):
    """Microsoft Research paraphrase corpus, accuracy and F1 (Dolan et al. 2004)."""

    task_name = "mrpc"
    title = "MRPC"
    protocol = "train-test"
    columns = {"sentence1": "text", "sentence2": "text", "label": "label"}
    positive_label = 1
    hub = {
        "train": [HubSplit("nyu-mll/glue", split, name="mrpc") for split in ("train", "validation")],
        "test": [HubSplit("nyu-mll/glue", "test", name="mrpc")],
    }


_SICK_COLUMNS = {"sentence1": "sentence_A", "sentence2": "sentence_B"}
_SICK_LABELS = {0: "ENTAILMENT", 1: "NEUTRAL", 2: "CONTRADICTION"}


class SICKEntailment(ClassificationTask):
    """SICK entailment, three classes (Marelli et al. 2014)."""

    task_name = "sicke"
    title = "SICK-E"
    folder = "sickr"
    protocol = "train-validation-test"
    columns = {"sentence1": "text", "sentence2": "text", "entailment": "label"}
    label_column = "entailment"
    hub = {
        split: [
            HubSplit(
                "RobZamp/sick",
                split,
                revision="refs/convert/parquet",
                rename={**_SICK_COLUMNS, "entailment": "label"},
                values={"entailment": _SICK_LABELS},
            )
        ]
        for split in SPLITS["train-validation-test"]
    }


class SupervisedSICKRelatedness(RelatednessTask):
    """SICK relatedness as a supervised task (Marelli et al. 2014): SICK-R of the paper."""

    task_name = "sickr-supervised"
    title = "SICK-R (supervised)"
    folder = "sickr"
    hub = {
        split: [
            HubSplit(
                "RobZamp/sick",
                split,
                revision="refs/convert/parquet",
                rename={**_SICK_COLUMNS, "score": "relatedness_score"},
            )
        ]
        for split in SPLITS["train-validation-test"]
    }


class SupervisedSTSBenchmark(RelatednessTask):
    """STS benchmark as a supervised task (Cer et al. 2017)."""

    task_name = "stsb-supervised"
    title = "STS-B (supervised)"
    folder = "stsbenchmark"
    hub = {split: [HubSplit("mteb/stsbenchmark-sts", split)] for split in SPLITS["train-validation-test"]}


TRANSFER_TASKS: tuple[type[TransferTask], ...] = (
    MR,
    CR,
    SUBJ,
    MPQA,
    SST2,
    TREC,
    MRPC,
    SICKEntailment,
    SupervisedSICKRelatedness,
    SupervisedSTSBenchmark,
)
