"""Makes our module classes known to sentence-transformers, so that our models load without a flag.

sentence-transformers refuses classes from outside its own package unless `trust_remote_code=True`. It asks the class
attribute `_module_classes` first, and there we add our own classes and nothing else: a model folder still cannot name
a foreign class or run a Python file of its own. The attribute is private to sentence-transformers, which is why
everything that touches it is in this file.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

logger = logging.getLogger(__name__)

HOST = "sentence_transformers"

MODULE_CLASSES = {
    "mv_st.modules.fasttext_embedding": "FastTextEmbedding",
    "mv_st.modules.bigru_view": "BiGRUView",
    "mv_st.modules.linear_mean_view": "LinearMeanView",
    "mv_st.modules.pc_removal": "PCRemoval",
    "mv_st.modules.view_ensemble": "ViewEnsemble",
    "mv_st.evaluation.trained_baselines": "QuickThoughtView",
}
"""Where each class lives. These paths stand in every saved model: never move a class."""

CODE = "modeling_mv_st"
"""The file in which self-contained models keep their code; where mv_st is imported, its own classes take its place."""


class ModuleClasses(Mapping[str, type]):
    """Class references of our modules and the classes, which are imported when they are asked for.

    Args:
        others: What was registered before us.
    """

    def __init__(self, others: Mapping[str, type]) -> None:
        self._others = others
        self._paths = {f"{module}.{name}": (module, name) for module, name in MODULE_CLASSES.items()}
        self._paths |= {
            f"{CODE}.{name}": (module, name)
            for module, name in MODULE_CLASSES.items()
            if module.startswith("mv_st.modules.")
        }

    def __getitem__(self, reference: str) -> type:
        if reference not in self._paths:
            return self._others[reference]
        module, name = self._paths[reference]
        return getattr(importlib.import_module(module), name)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._others, **self._paths})

    def __len__(self) -> int:
        return len(self._others) + len(self._paths)


def register_modules() -> None:
    """Register now if sentence-transformers is there, otherwise as soon as it is imported."""
    if HOST in sys.modules:
        _register()
    else:
        # Importing it here would cost seconds, also for `mv-st --help`.
        sys.meta_path.insert(0, _RegisterAfterImport())


def _register() -> None:
    model_class: Any = getattr(sys.modules[HOST], "SentenceTransformer", None)
    known = getattr(model_class, "_module_classes", None)
    if not isinstance(known, Mapping):
        logger.error(
            "this version of sentence-transformers has no place to register modules: "
            'load mv_st models with SentenceTransformer("path", trust_remote_code=True)'
        )
    elif not isinstance(known, ModuleClasses):
        model_class._module_classes = ModuleClasses(known)


class _RegisterAfterImport(MetaPathFinder):
    """Lets the import of sentence-transformers happen as usual, and registers our modules at its end.

    It stays in place until the import has happened: looking for the package, as many libraries do to find out whether
    it is installed, is not importing it.
    """

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != HOST:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            run_host = spec.loader.exec_module

            def run_host_and_register(module: ModuleType) -> None:
                run_host(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register()

            spec.loader.exec_module = run_host_and_register  # type: ignore[method-assign]
        return spec
