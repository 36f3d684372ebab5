"""Similarity tasks: cosine of the two vectors of a pair against human scores, one score per dataset.

A further task is a class of a few lines; this one reads `DATA_DIR/tickets/*.jsonl`:

```python
from mv_st.evaluation import STSTask, evaluate

class Tickets(STSTask):
    task_name = "tickets"

evaluate("my-model", "data", tasks=["sts12", Tickets]).to_markdown()
```
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from datasets import Dataset
from mteb.abstasks import AbsTaskSTS

from mv_st.errors import UserError

from .data import HubSplit, list_stems
from .scores import Correlation, STSScores, combine, correlate, paired_cosines
from .task import FileTask

if TYPE_CHECKING:
    import numpy as np
    from mteb.models import MTEBModels
    from mteb.results import TaskResult
    from numpy.typing import NDArray

    from .encoder import Vectors

logger = logging.getLogger(__name__)


class STSTask(FileTask, AbsTaskSTS):
    """Semantic textual similarity with one score per dataset.

    In mteb's results each dataset is a subset, with Pearson's r as the main score, so that `get_score()` is the
    unweighted mean over the datasets. `sts_scores()` gives all scorings, after the task has run.

    Attributes:
        datasets: Names of the dataset files; if not set, every file in the folder is one.
        licensed_datasets: Datasets that belong to the task but may not be passed on; used if they are there.
    """

    columns = {"sentence1": "text", "sentence2": "text", "score": "number"}
    kind = "STS"
    main_score = "cosine_pearson"
    datasets: ClassVar[tuple[str, ...]] = ()
    licensed_datasets: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hf_subsets = list(self.parts)
        self.skip_broken = False
        self._encoded_by: MTEBModels | None = None
        self._vectors: dict[str, tuple[Vectors, Vectors]] = {}
        self.correlations: dict[str, Correlation] = {}
        self.cosines: dict[str, NDArray[np.float64]] = {}

    @classmethod
    def metadata_parts(cls) -> list[str]:
        """The datasets."""
        return [*cls.datasets, *cls.licensed_datasets] or ["default"]

    def find_parts(self) -> list[str]:
        """The datasets for which there is a file, or those on the hub."""
        if self.data_dir is None:
            found = list(self.hub)
        else:
            wanted = [*self.datasets, *self.licensed_datasets] or list_stems(self.data_dir / self.folder)
            found = [part for part in wanted if self.find_part(part)]
        if not found:
            raise self.not_found(self.datasets or ["*"])
        return found

    def load_data(self, num_proc: int | None = None, *, skip_broken: bool = False, **kwargs: Any) -> None:
        """Read the datasets.

        Args:
            num_proc: Not used, the files are small.
            skip_broken: Only note in `failed` what cannot be read or scored, instead of raising or warning.
            kwargs: Not used.
        """
        if self.data_loaded:
            return
        self.skip_broken = skip_broken
        loaded: dict[str, Any] = {}
        for part in self.parts:
            try:
                loaded[part] = {"test": Dataset.from_dict(self.read_part(part))}
            except UserError as error:
                if not skip_broken:
                    raise
                self.failed[part] = str(error)
        self.dataset = loaded
        self.hf_subsets = list(loaded)
        self.data_loaded = True

    def collect(self, result: TaskResult) -> STSScores:
        """All scorings, of which mteb's result holds one."""
        return self.sts_scores()

    def sts_scores(self) -> STSScores:
        """All scores, after the task has run."""
        if not self.correlations:
            raise UserError(f"{self.task_name}: no dataset could be scored")
        assert self.dataset is not None
        pairs = {part: (self.dataset[part]["test"]["score"], cosines) for part, cosines in self.cosines.items()}
        absent = [part for part in self.metadata_parts() if part not in self.correlations and part != "default"]
        return combine(pairs, self.correlations, absent)

    def _evaluate_subset(
        self, model: MTEBModels, data_split: Dataset, *, hf_subset: str, encode_kwargs: Any, **kwargs: Any
    ) -> Any:
        cosines = paired_cosines(*self._encode_dataset(model, hf_subset, **encode_kwargs))
        try:
            score = correlate(data_split["score"], cosines)
        except UserError as error:  # constant scores: this dataset has no correlation, the others may
            self.failed[hf_subset] = str(error)
            if not self.skip_broken:
                logger.warning("%s/%s: %s", self.task_name, hf_subset, error)
            return {"cosine_pearson": float("nan"), "cosine_spearman": float("nan"), "n_pairs": len(cosines)}
        self.correlations[hf_subset] = score
        self.cosines[hf_subset] = cosines
        return {"cosine_pearson": score.pearson, "cosine_spearman": score.spearman, "n_pairs": score.n}

    def _encode_dataset(self, model: MTEBModels, dataset: str, **encode_kwargs: Any) -> tuple[Vectors, Vectors]:
        """Vectors of both sides. All datasets are encoded at once, because components may be fitted on all of them."""
        if self._encoded_by is not model:
            assert self.dataset is not None
            parts = [self.dataset[part]["test"] for part in self.hf_subsets]
            sides = [part[side] for part in parts for side in ("sentence1", "sentence2")]
            vectors = self.encode(model, sides, "similarity", **encode_kwargs)
            self._vectors = dict(zip(self.hf_subsets, zip(vectors[::2], vectors[1::2], strict=True), strict=True))
            self._encoded_by = model
        return self._vectors[dataset]


class STS12(STSTask):
    """SemEval-2012 task 6 (Agirre et al. 2012)."""

    task_name = "sts12"
    title = "STS12"
    datasets = ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")
    hub = {"all": [HubSplit("mteb/sts12-sts", "test")]}


class STS13(STSTask):
    """*SEM 2013 shared task (Agirre et al. 2013); its SMT dataset is only given out by the LDC."""

    task_name = "sts13"
    title = "STS13"
    datasets = ("FNWN", "headlines", "OnWN")
    licensed_datasets = ("SMT",)
    hub = {"all": [HubSplit("mteb/sts13-sts", "test")]}


class STS14(STSTask):
    """SemEval-2014 task 10 (Agirre et al. 2014)."""

    task_name = "sts14"
    title = "STS14"
    datasets = ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news")
    hub = {"all": [HubSplit("mteb/sts14-sts", "test")]}


class STS15(STSTask):
    """SemEval-2015 task 2 (Agirre et al. 2015)."""

    task_name = "sts15"
    title = "STS15"
    datasets = ("answers-forums", "answers-students", "belief", "headlines", "images")
    hub = {"all": [HubSplit("mteb/sts15-sts", "test")]}


class STS16(STSTask):
    """SemEval-2016 task 1 (Agirre et al. 2016)."""

    task_name = "sts16"
    title = "STS16"
    datasets = ("answer-answer", "headlines", "plagiarism", "postediting", "question-question")
    hub = {"all": [HubSplit("mteb/sts16-sts", "test")]}


class STSBenchmark(STSTask):
    """Test split of the STS benchmark (Cer et al. 2017), by cosine."""

    task_name = "stsb"
    title = "STS-B"
    folder = "stsbenchmark"
    datasets = ("test",)
    hub = {"test": [HubSplit("mteb/stsbenchmark-sts", "test")]}


class SICKRelatedness(STSTask):
    """Test split of SICK relatedness (Marelli et al. 2014), by cosine: the paper's SICK14."""

    task_name = "sickr"
    title = "SICK-R"
    folder = "sickr"
    datasets = ("test",)
    hub = {
        "test": [
            HubSplit(
                "RobZamp/sick",
                "test",
                revision="refs/convert/parquet",
                rename={"sentence1": "sentence_A", "sentence2": "sentence_B", "score": "relatedness_score"},
            )
        ]
    }


STS_TASKS: tuple[type[STSTask], ...] = (STS12, STS13, STS14, STS15, STS16, STSBenchmark, SICKRelatedness)
