"""Our models load without a flag once mv_st is imported, and nobody else's code does."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers
from fresh_process import SENTENCES, run_python
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import BaseModel

from mv_st import _registration, modules

MV_ST_FIRST = """
import json, sys
import mv_st

heavy = ("torch", "transformers", "sentence_transformers", "tokenizers", "datasets", "numpy")
found = {"heavy": [name for name in heavy if name in sys.modules]}

# Many libraries look whether the package is there, without importing it.
import importlib.util
importlib.util.find_spec("sentence_transformers")
importlib.util.find_spec("sentence_transformers")
assert "sentence_transformers" not in sys.modules

from mv_st.modules import BiGRUView
from sentence_transformers import SentenceTransformer

found["finders_left"] = sum(type(finder).__module__.startswith("mv_st") for finder in sys.meta_path)
found["vectors"] = SentenceTransformer(sys.argv[1]).encode(json.loads(sys.argv[2])).tolist()
print(json.dumps(found))
"""


@pytest.fixture
def saved(model: SentenceTransformer, tmp_path: Path) -> Path:
    model.save_pretrained(str(tmp_path / "model"))
    return tmp_path / "model"


def rename_class(folder: Path, index: int, reference: str) -> None:
    """Let `modules.json` name another class."""
    entries = json.loads((folder / "modules.json").read_text())
    entries[index]["type"] = reference
    (folder / "modules.json").write_text(json.dumps(entries))


def test_import_of_mv_st_first(saved: Path, model: SentenceTransformer) -> None:
    found = run_python(MV_ST_FIRST, saved, json.dumps(SENTENCES))
    assert found["heavy"] == [], "the import alone is cheap"
    assert found["finders_left"] == 0
    np.testing.assert_allclose(np.array(found["vectors"]), model.encode(SENTENCES), atol=1e-6)


def test_without_import_the_flag_is_needed(without_mv_st: dict[str, Any]) -> None:
    assert "trust_remote_code=True" in without_mv_st["refusal"]
    np.testing.assert_allclose(np.array(without_mv_st["with_flag"]), without_mv_st["expected"], atol=1e-6)


def test_import_of_mv_st_last(without_mv_st: dict[str, Any]) -> None:
    np.testing.assert_allclose(np.array(without_mv_st["after_import"]), without_mv_st["expected"], atol=1e-6)


@pytest.mark.parametrize(
    "reference",
    [
        "json.JSONDecoder",
        "mv_st.modules.view.View",
        "mv_st.modules.BiGRUView",
        "mv_st.vectors.WordVectors",
        "fasttext_embedding.FastTextEmbedding",
        "foreign.Module",
    ],
)
def test_a_foreign_class_is_still_refused(saved: Path, reference: str) -> None:
    rename_class(saved, 1, reference)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(saved))


def test_code_in_the_model_folder_is_never_run(saved: Path, model: SentenceTransformer) -> None:
    trap = f"import pathlib; pathlib.Path({str(saved / 'trapped')!r}).touch(); raise SystemExit('executed')"
    names = [
        "mv_st",
        "modules",
        "fasttext_embedding",
        "bigru_view",
        "modeling",
        "__init__",
        "sitecustomize",
        "foreign",
    ]
    for folder in (saved, saved / "1_BiGRUView", saved / "mv_st", saved / "mv_st" / "modules"):
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / f"{name}.py").write_text(trap)
    np.testing.assert_array_equal(SentenceTransformer(str(saved)).encode(SENTENCES), model.encode(SENTENCES))
    rename_class(saved, 1, "foreign.Module")
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(saved))
    assert not (saved / "trapped").exists()


def test_the_paths_in_saved_models_do_not_change(saved: Path) -> None:
    entries = json.loads((saved / "modules.json").read_text())
    assert [entry["type"] for entry in entries] == [
        "mv_st.modules.fasttext_embedding.FastTextEmbedding",
        "mv_st.modules.bigru_view.BiGRUView",
        "mv_st.modules.linear_mean_view.LinearMeanView",
        "mv_st.modules.pc_removal.PCRemoval",
        "mv_st.modules.view_ensemble.ViewEnsemble",
    ]


def test_every_module_is_registered_and_nothing_else() -> None:
    registered = SentenceTransformer._module_classes
    assert isinstance(registered, _registration.ModuleClasses)
    ours = {reference: registered[reference] for reference in registered if "mv_st." in reference}
    assert {cls.__name__ for cls in ours.values()} == {*modules.__all__, "QuickThoughtView"}
    assert len(registered) == len(list(registered)) == len(ours)
    assert "json.JSONDecoder" not in registered


def test_keeps_what_others_have_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SentenceTransformer, "_module_classes", {"other.Module": dict})
    _registration.register_modules()
    _registration.register_modules()
    registered = SentenceTransformer._module_classes
    assert registered["other.Module"] is dict
    assert len(registered) == 1 + len(_registration.MODULE_CLASSES) + len(modules.__all__)
    assert registered.get("missing.Module") is None


def test_a_release_without_the_attribute_is_explained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(SentenceTransformer, "_module_classes")
    monkeypatch.delattr(BaseModel, "_module_classes")
    with caplog.at_level(logging.ERROR):
        _registration.register_modules()
    assert "trust_remote_code=True" in caplog.text


def test_registers_at_the_end_of_the_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a package of the same name that stands in for the host."""
    (tmp_path / "sentence_transformers.py").write_text("class SentenceTransformer:\n    _module_classes = {}\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "sentence_transformers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    _registration.register_modules()
    assert importlib.util.find_spec("sentence_transformers") is not None
    stand_in = importlib.import_module("sentence_transformers")
    assert stand_in is not sentence_transformers
    assert isinstance(stand_in.SentenceTransformer._module_classes, _registration.ModuleClasses)
    assert not any(isinstance(finder, _registration._RegisterAfterImport) for finder in sys.meta_path)
