"""Benchmark scripts, run in this process on copies, so that the results of the repository are not touched."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import shutil
import sys
from pathlib import Path
from unittest import mock

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run_benchmark(folder: Path, script: str, *arguments: str) -> tuple[int, str]:
    """Run a script in a folder, where its results go to.

    Returns:
        Exit code, and what it wrote to standard error.
    """
    copies = folder / "benchmarks"
    shutil.copytree(BENCHMARKS, copies, ignore=shutil.ignore_patterns("results", "__pycache__"), dirs_exist_ok=True)
    modules = {path.stem for path in copies.glob("*.py")}
    before, errors = os.getcwd(), io.StringIO()
    os.chdir(folder)
    try:
        with (
            mock.patch.object(sys, "argv", [f"benchmarks/{script}", *arguments]),
            mock.patch.object(sys, "path", [str(copies), *sys.path]),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(errors),
        ):
            runpy.run_path(str(copies / script), run_name="__main__")
        code = 0
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    finally:
        os.chdir(before)
        for name in modules & set(sys.modules):
            del sys.modules[name]
    return code, errors.getvalue()
