"""What `import mv_st` promises."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from fresh_process import run_python
from packaging.specifiers import SpecifierSet

import mv_st
from mv_st.modules.fasttext_embedding import REQUIREMENT

PUBLIC = [
    "ContiguousBatchSampler",
    "MultiViewLoss",
    "adapt_components",
    "add_spelling",
    "add_spelling_codes",
    "compact_model",
    "build_model",
    "export_static",
    "fit_components",
    "load_corpus",
    "load_shipped_model",
    "load_vectors",
    "push_to_hub",
    "save_self_contained",
    "train",
    "train_vectors",
    "whiten_words",
    "window_dataset",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name: str) -> None:
    assert callable(getattr(mv_st, name))
    assert name in dir(mv_st)
    assert name in mv_st.__all__


def test_nothing_else_is_public() -> None:
    assert sorted(mv_st.__all__) == sorted([*PUBLIC, "__version__"])
    with pytest.raises(AttributeError, match="no attribute 'build_modle'"):
        _ = mv_st.build_modle


def test_star_import() -> None:
    names: dict[str, object] = {}
    exec("from mv_st import *", names)
    assert set(PUBLIC) <= set(names)


def test_modules_are_public() -> None:
    from mv_st import modules

    assert set(modules.__all__) == {"FastTextEmbedding", "BiGRUView", "LinearMeanView", "PCRemoval", "ViewEnsemble"}
    assert all(hasattr(modules, name) for name in modules.__all__)


def test_import_is_light() -> None:
    loaded = run_python("import json, sys, mv_st; print(json.dumps(sorted(sys.modules)))")
    heavy = {
        "torch",
        "numpy",
        "transformers",
        "sentence_transformers",
        "tokenizers",
        "datasets",
        "fasttext",
        "pyarrow",
    }
    assert not heavy.intersection(loaded)


def test_a_model_asks_for_a_version_that_this_one_is() -> None:
    assert mv_st.__version__ in SpecifierSet(REQUIREMENT["mv-st"]["specifier"], prereleases=True)
    assert importlib.metadata.version("mv-st") == mv_st.__version__


def test_uses_no_deprecated_place_of_the_host() -> None:
    for file in Path(mv_st.__file__).parent.rglob("*.py"):
        assert "sentence_transformers.models" not in file.read_text(encoding="utf-8"), file


def test_is_typed() -> None:
    assert Path(mv_st.__file__).with_name("py.typed").exists()
