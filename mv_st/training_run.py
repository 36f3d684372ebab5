"""The folder of a training run that is not finished, and the checkpoints in it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from torch import Tensor, nn
from transformers import TrainerState

from .errors import UserError
from .files import check_new_directory, whole_directory

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class TrainingRun:
    """`<output>.run`, beside the folder that the model will be in.

    It holds the untrained model, `run.json` that says how the run was started, and checkpoints. It appears when
    training begins, so that nothing is left behind by a run that cannot begin, and goes when the model is written.

    Args:
        output: Folder of the model.
    """

    def __init__(self, output: str | Path) -> None:
        self.output = Path(os.path.abspath(output))
        self.folder = self.output.parent / f"{self.output.name}.run"
        self.untrained = self.folder / "untrained"
        self._description = self.folder / "run.json"

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Raise a UserError if the run cannot start or go on, before any work is done."""
        check_new_directory(self.output, overwrite=overwrite)
        is_interrupted = self._description.exists()
        if resume and not is_interrupted:
            raise UserError(f"nothing to resume: there is no interrupted run in {self.folder}")
        if is_interrupted and not resume and not overwrite:
            raise UserError(f"an interrupted run is in {self.folder}; resume it (--resume) or remove that folder")

    def begin(self, model: SentenceTransformer, description: dict[str, Any], prepared: dict[str, Any]) -> None:
        """Create the folder, whole or not at all.

        Args:
            model: The untrained model.
            description: What the result of the run depends on.
            prepared: What is to be told of the preparation of the model.
        """
        with whole_directory(self.folder, overwrite=True) as directory:
            model.save_pretrained(str(directory / self.untrained.name), create_model_card=False)
            text = json.dumps(description | {"prepared": prepared}, indent=2)
            (directory / self._description.name).write_text(text, encoding="utf-8")

    def reopen(self, description: dict[str, Any]) -> dict[str, Any]:
        """Check that a run was started in the same way, and remove what it was killed in the middle of writing.

        Args:
            description: What the result of the run depends on.

        Returns:
            What is to be told of the preparation of the model.
        """
        before = json.loads(self._description.read_text(encoding="utf-8"))
        prepared: dict[str, Any] = before.pop("prepared", {})
        now = json.loads(json.dumps(description))
        if changed := _differences(before, now):
            raise UserError(
                f"the interrupted run in {self.folder} was started with another {changed[0]}; "
                "resume it with the same corpus, vectors and settings"
            )
        for checkpoint in self.folder.glob("checkpoint-*"):
            if checkpoint_state(checkpoint) is None:
                shutil.rmtree(checkpoint)
        return prepared

    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint."""
        checkpoints = [path for path in self.folder.glob("checkpoint-*") if checkpoint_state(path) is not None]
        return max(checkpoints, key=lambda path: int(path.name.split("-")[1]), default=None)

    def close(self) -> None:
        """Remove the folder; the model is in its place."""
        shutil.rmtree(self.folder, ignore_errors=True)


class MultiViewTrainer(SentenceTransformerTrainer):
    """The stock trainer, with checkpoints that leave out the frozen word vectors.

    A checkpoint of the stock trainer writes the whole embedding matrix again, 2.4 GB for two million words.
    """

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        directory = Path(output_dir or str(self.args.output_dir))
        directory.mkdir(parents=True, exist_ok=True)
        save_file(_trained_weights(self.model), directory / "model.safetensors")

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:  # type: ignore[override]
        weights = load_file(Path(checkpoint_path) / "model.safetensors")
        if weights.keys() != _trained_weights(self.model).keys():
            raise UserError(f"the checkpoint {checkpoint_path} belongs to another model")
        self.model.load_state_dict(weights, strict=False)


def _trained_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights but those of the first module, the word vectors."""
    return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("0.")}


def checkpoint_state(checkpoint: Path) -> TrainerState | None:
    """The state of the trainer in a checkpoint, or None if the checkpoint was not written to its end."""
    try:
        # The state is the last file of a checkpoint.
        return TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    except (FileNotFoundError, ValueError):
        return None


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names of what differs, also inside nested settings.

    Example:
        >>> _differences({"seed": 0, "settings": {"window": 3}}, {"seed": 0, "settings": {"window": 5}})
        ['window']
    """
    names = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if name in ("settings", "limits") and old is not None and new is not None:
            names += _differences(old, new)
        elif old != new:
            names.append(name)
    return names
