"""What a trained model says of its training: `training.json` and `training.png`."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import platform
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

VERSIONED = ("mv-st", "sentence-transformers", "torch", "transformers", "tokenizers", "numpy", "datasets", "fasttext")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version()}
    for name in VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write_record(directory: Path, record: dict[str, Any]) -> None:
    """Write `training.json`, and `training.png` if matplotlib is there.

    Args:
        directory: Folder of the model.
        record: Settings, corpus, vectors, duration and `history`, the log of the trainer.
    """
    (directory / "training.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        logger.warning("no training.png without matplotlib: pip install 'mv-st[plot]'")
    else:
        plot_curves(record["history"], directory / "training.png")


def plot_curves(history: list[dict[str, float]], path: Path) -> None:
    """Draw loss, temperature, and the paper's figure: agreement of adjacent sentences for each pair of views."""
    from matplotlib.figure import Figure

    logs = [entry for entry in history if "temperature" in entry]
    steps = [entry["step"] for entry in logs]
    agreements = sorted({name for entry in logs for name in entry if name.startswith("agreement_")})
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    loss, temperature, agreement = figure.subplots(1, 3)
    loss.plot(steps, [entry["loss"] for entry in logs])
    loss.set_title("loss")
    temperature.plot(steps, [entry["temperature"] for entry in logs])
    temperature.set_title("temperature")
    for name in agreements:
        label = name.removeprefix("agreement_").replace("_", " - ")
        agreement.plot(steps, [entry.get(name, float("nan")) for entry in logs], label=label)
    agreement.set_title("cosine of adjacent sentences / temperature")
    if agreements:
        agreement.legend()
    for axis in (loss, temperature, agreement):
        axis.set_xlabel("steps")
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
