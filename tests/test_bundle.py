"""Modules as flat files: whatever imports a module uses, the host library must be able to follow them."""

from __future__ import annotations

import ast
import pkgutil
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_relative_import_files

from mv_st import modules
from mv_st.bundle import _flat_imports, flat_files, flat_name

MODULES = [f"mv_st.modules.{module.name}" for module in pkgutil.iter_modules(modules.__path__)]


@pytest.mark.parametrize("module", [*MODULES, "mv_st.modules", "mv_st.components"])
def test_every_module_can_be_followed(module: str, tmp_path: Path) -> None:
    files = flat_files([module])
    for name, source in files.items():
        compile(source, name, "exec")
        (tmp_path / name).write_text(source, encoding="utf-8")
        relative = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level]
        assert {f"{node.module}.py" for node in relative} <= set(files)
        absolute = {
            alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for alias in node.names
        }
        assert not any(alias.startswith("mv_st") for alias in absolute)
    found = {Path(path).name for path in get_relative_import_files(tmp_path / f"{flat_name(module)}.py")}
    assert found | {f"{flat_name(module)}.py"} == set(files)


def test_only_imports_change() -> None:
    source = Path(modules.__path__[0], "words.py").read_text(encoding="utf-8")
    assert flat_files(["mv_st.modules.words"]) == {"mv_st_modules_words.py": source}


def imports(statement: str, together: set[str]) -> list[str]:
    """What becomes of a statement `from ORIGIN import ...`."""
    (node,) = ast.parse(statement).body
    assert isinstance(node, ast.ImportFrom)
    return _flat_imports(node.module or "", node.names, together)


def test_names_of_a_module_that_comes_along() -> None:
    together = {"mv_st.errors"}
    assert imports("from mv_st.errors import UserError as Mistake, FORMAT", together) == [
        "from .mv_st_errors import UserError as Mistake, FORMAT"
    ]


def test_a_module_that_comes_along() -> None:
    lines = imports("from mv_st import errors as mistakes", {"mv_st.errors"})
    assert lines == [
        "import importlib",
        "from .mv_st_errors import __name__ as mistakes",
        "mistakes = importlib.import_module(mistakes)",
    ]


def test_what_is_left_to_the_package() -> None:
    for statement, expected in (
        ("from mv_st.errors import UserError", 'UserError = importlib.import_module("mv_st.errors").UserError'),
        ("from mv_st import errors", 'errors = importlib.import_module("mv_st.errors")'),
        ("from mv_st import __version__", '__version__ = importlib.import_module("mv_st").__version__'),
    ):
        lines = imports(statement, set())
        assert lines == ["import importlib", expected]
        exec("\n".join(lines), {})
