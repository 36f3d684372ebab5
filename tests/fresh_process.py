"""Code in a Python process of its own, and the sentences that it is tried with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SENTENCES = [
    "The cat sat on the mat.",
    "A dog ran under the tree, and it was very happy!",
    "Yesterday the sky was blue.",
    "The bird flew over the red house.",
    "It does not sit on a tree today.",
    "Was the dog sad?",
    "The happy bird and the sad cat.",
    "Red sky, blue house.",
    "It's the cat's tree, is it not?",
    "A cat!",
    "They don't know Paris or the US in May.",
    "привет мир",
]


def run_python(code: str, *arguments: str | Path) -> Any:
    """Run code in a fresh Python process; it prints JSON as its last line, which is returned."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
