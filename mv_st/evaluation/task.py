"""What our evaluation tasks have in common: mteb tasks whose data is a folder of JSON Lines files, or the hub."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from datasets import Dataset
from mteb.abstasks import AbsTask
from mteb.abstasks.task_metadata import TaskMetadata
from torch.utils.data import DataLoader

from mv_st.errors import UserError

from .data import Columns, HubSplit, check_data_dir, find_file, load_hub_rows, read_rows
from .encoder import EvaluationEncoder, Representation, Vectors, has_component_removal

if TYPE_CHECKING:
    from mteb.models import MTEBModels
    from mteb.results import TaskResult

    from .results import TaskScores


class TaskNotFoundError(UserError):
    """The data of a task is not there. The other tasks can still run."""


class FileTask(AbsTask):
    """An mteb task with one file per part: per dataset for similarity, per split for transfer.

    A subclass that sets `task_name` is a task; its mteb metadata is made from the class attributes.

    Attributes:
        task_name: Short name, as in `evaluate(tasks=["sts12"])`.
        title: Name in tables.
        folder: Folder below the data folder; the task name, if not set.
        columns: Column name -> kind of its values, see `read_rows`.
        hub: Part -> public splits that hold it.
        language: Language and script of the data, as mteb writes it.
        kind: Type of the task in mteb.
        main_score: Name of the score that mteb takes for the main one.
    """

    task_name: ClassVar[str]
    title: ClassVar[str]
    folder: ClassVar[str]
    columns: ClassVar[Mapping[str, str]]
    hub: ClassVar[Mapping[str, Sequence[HubSplit]]] = {}
    language: ClassVar[str] = "eng-Latn"
    kind: ClassVar[str]
    main_score: ClassVar[str]
    abstask_prompt = "Represent the sentence."

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "task_name" not in cls.__dict__:
            return
        cls.title = cls.__dict__.get("title", cls.task_name)
        cls.folder = cls.__dict__.get("folder", cls.task_name)
        cls.metadata = TaskMetadata(
            # mteb has tasks called STS12 and so on, scored in another way: ours must not share their cache entries.
            name=f"mv-st-{cls.task_name}",
            description=(cls.__doc__ or cls.title).strip().splitlines()[0],
            dataset={"path": cls._source(), "revision": "main"},
            type=cls.kind,  # type: ignore[arg-type]
            category="t2t" if cls.kind == "STS" else "t2c",
            eval_splits=["test"],
            eval_langs={part: [cls.language] for part in cls.metadata_parts()},
            main_score=cls.main_score,
        )

    def __init__(self, data_dir: str | Path | None = None, seed: int = 1111, **kwargs: Any) -> None:
        """Find the data.

        Args:
            data_dir: Folder that holds one folder per task; None takes public datasets from the hub.
            seed: Seed of whatever the protocol draws.
            kwargs: Passed on to mteb.

        Raises:
            TaskNotFoundError: There is no data for this task.
        """
        super().__init__(seed=seed, **kwargs)
        self.data_dir = None if data_dir is None else check_data_dir(data_dir)
        self.failed: dict[str, str] = {}
        self.parts = self.find_parts()
        if self.data_dir is not None:
            dataset = {"path": self._source(), "revision": self._fingerprint()}
            self.metadata = self.metadata.model_copy(update={"dataset": dataset})

    @classmethod
    def metadata_parts(cls) -> list[str]:
        """The parts that mteb scores one by one."""
        return ["default"]

    def find_parts(self) -> list[str]:
        """The parts for which there is data; raises TaskNotFoundError if there are too few."""
        raise NotImplementedError

    def find_part(self, part: str) -> Path | None:
        """The file of a part."""
        return None if self.data_dir is None else find_file(self.data_dir / self.folder, part)

    def not_found(self, parts: Sequence[str]) -> TaskNotFoundError:
        """The error that says which files were looked for."""
        if self.data_dir is None:
            return TaskNotFoundError(f"{self.task_name}: no public dataset is known; give a data folder")
        names = ", ".join(f"{part}.jsonl[.gz]" for part in parts)
        # The folder is named without its place, so that results can be published.
        folder = f"{self.data_dir.resolve().name}/{self.folder}"
        return TaskNotFoundError(f"{self.task_name}: not found, looked for {names} in {folder}")

    def read_part(self, part: str) -> Columns:
        """The rows of a part."""
        path = self.find_part(part)
        return load_hub_rows(self.hub[part], self.columns) if path is None else read_rows(path, self.columns)

    def collect(self, result: TaskResult) -> TaskScores:
        """The typed scores of a finished run."""
        raise NotImplementedError

    def encode(
        self, model: MTEBModels, groups: Sequence[Sequence[str]], representation: Representation, **encode_kwargs: Any
    ) -> list[Vectors]:
        """Encode lists of sentences, with our own wrapper or with any model that mteb can run."""
        if isinstance(model, EvaluationEncoder):
            return model.encode_groups(groups, representation)
        options = dict(encode_kwargs)
        if has_component_removal(getattr(model, "model", None)):
            options["representation"] = representation
        vectors = []
        for group in groups:
            texts: Any = Dataset.from_dict({"text": list(group)})
            encoded = model.encode(  # type: ignore[union-attr]
                DataLoader(texts, batch_size=options.get("batch_size", 128)),
                task_metadata=self.metadata,
                hf_split="test",
                hf_subset="default",
                **options,
            )
            vectors.append(np.asarray(encoded, dtype=np.float32))
        return vectors

    @classmethod
    def _source(cls) -> str:
        public = [part.path for parts in cls.hub.values() for part in parts]
        return public[0] if public else f"local/{cls.task_name}"

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for part in self.parts:
            path = self.find_part(part)
            digest.update(part.encode())
            digest.update(path.read_bytes() if path else b"")
        return digest.hexdigest()[:20]

    def _calculate_descriptive_statistics_from_split(self, split: str, **kwargs: Any) -> Any:
        parts = self.dataset or {}
        return {"num_samples": sum(len(part[split]) for part in parts.values())}
