"""What the benchmark scripts share: the command to print beside a result, and the files that it goes to."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def printed_command() -> str:
    """The command line of this process: files of the repository from its top, others without their folders."""
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *(_printed(word) for word in sys.argv[1:])])


def _printed(word: str) -> str:
    if not Path(word).exists() and not Path(word).is_absolute():
        return word
    file, top = Path(word).absolute(), RESULTS.parent.parent
    return str(file.relative_to(top)) if file.is_relative_to(RESULTS) else file.name


def write_results(name: str, result: dict[str, Any], markdown: list[str]) -> None:
    """Write `results/NAME.json` and `results/NAME.md`, and print the latter."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    text = "\n".join([*markdown, "", f"Written by `{result['command']}`."]) + "\n"
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
