"""Modules of this package as a flat set of files that import each other and nothing else of the package.

The host library loads code from a model repository into a package of its own, follows imports of the form
`from .name import ...` while it does so, and copies the file of a class and all that it imports when the model is
saved again. Files that keep to that form are made here from the sources as they are: only imports change, so that the
files can be read before they are trusted, and nobody has to maintain them.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "mv_st"


def flat_name(module: str) -> str:
    """Name of the flat file of a module, without its ending.

    Example:
        >>> flat_name("mv_st.modules.words")
        'mv_st_modules_words'
    """
    return module.replace(".", "_")


def flat_files(modules: Iterable[str]) -> dict[str, str]:
    """Make files of modules and of everything that they import from this package at their top.

    Imports inside functions are not followed: what they import from elsewhere in the package is left to an installed
    mv_st.

    Args:
        modules: Full names of modules.

    Returns:
        File name -> source code.

    Example:
        >>> files = flat_files(["mv_st.subwords"])
        >>> sorted(files), "from .mv_st_errors import UserError" in files["mv_st_subwords.py"]
        (['mv_st_errors.py', 'mv_st_subwords.py'], True)
    """
    sources: dict[str, _Source] = {}
    for module in modules:
        _collect(module, sources)
    return {f"{flat_name(module)}.py": source.flat(set(sources)) for module, source in sources.items()}


def _collect(module: str, sources: dict[str, _Source]) -> None:
    if module not in sources:
        sources[module] = _Source.read(module)
        for node in sources[module].tree.body:
            for imported in sources[module].imported_modules(node):
                _collect(imported, sources)


@dataclass
class _Source:
    """A module of this package.

    Attributes:
        package: The package that its relative imports start from.
        text: The source code.
        tree: The same, parsed.
    """

    package: list[str]
    text: str
    tree: ast.Module

    @classmethod
    def read(cls, module: str) -> _Source:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None or spec.parent is None:
            raise ImportError(f"there is no source code of {module}")
        text = Path(spec.origin).read_text(encoding="utf-8")
        return cls(spec.parent.split("."), text, ast.parse(text))

    def _origin(self, node: ast.AST) -> str | None:
        """Full name of the module of this package that an import names; None for anything else."""
        if not isinstance(node, ast.ImportFrom):
            return None
        if node.level == 0:
            return node.module if node.module is not None and node.module.split(".")[0] == PACKAGE else None
        start = self.package[: len(self.package) - node.level + 1]
        return ".".join([*start, node.module] if node.module else start)

    def imported_modules(self, node: ast.AST) -> list[str]:
        """Modules of this package that a statement imports."""
        origin = self._origin(node)
        if origin is None:
            return []
        submodules = [f"{origin}.{alias.name}" for alias in node.names]  # type: ignore[attr-defined]
        found = [name for name in submodules if _is_module(name)]
        return found if len(found) == len(submodules) else [origin]

    def flat(self, together: set[str]) -> str:
        """The source code with its imports changed.

        Args:
            together: Modules that have a flat file.
        """
        changes: dict[ast.stmt, list[str]] = {}
        for_types_only: set[ast.AST] = set()
        for node in ast.walk(self.tree):
            if node in for_types_only:
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                for_types_only |= set(ast.walk(node))
                changes[node] = []
            elif isinstance(node, ast.ImportFrom) and (origin := self._origin(node)) is not None:
                changes[node] = _flat_imports(origin, node.names, together)
        lines = self.text.splitlines()
        for node, new in sorted(changes.items(), key=lambda change: change[0].lineno, reverse=True):
            lines[node.lineno - 1 : node.end_lineno] = [" " * node.col_offset + line for line in new]
        return "\n".join(lines) + "\n"


def _flat_imports(origin: str, names: list[ast.alias], together: set[str]) -> list[str]:
    """The statements that import names from a module of this package.

    Args:
        origin: Full name of the module, or of the package that modules are imported from.
        names: What is imported.
        together: Modules that have a flat file.
    """
    plain, lines = [], []
    for alias in names:
        submodule, name = f"{origin}.{alias.name}", alias.asname or alias.name
        if submodule in together:
            # The module as such, by an import that the host library follows.
            lines += ["import importlib", f"from .{flat_name(submodule)} import __name__ as {name}"]
            lines += [f"{name} = importlib.import_module({name})"]
        elif origin in together:
            plain.append(ast.unparse(alias))
        else:
            found = f'("{submodule}")' if _is_module(submodule) else f'("{origin}").{alias.name}'
            lines += ["import importlib", f"{name} = importlib.import_module{found}"]
    if plain:
        lines.append(f"from .{flat_name(origin)} import {', '.join(plain)}")
    return lines


def _is_module(name: str) -> bool:
    parent = name.rpartition(".")[0]
    spec = importlib.util.find_spec(parent)
    is_package = spec is not None and spec.submodule_search_locations is not None
    return is_package and importlib.util.find_spec(name) is not None
