"""A model with its code beside it, loaded where mv_st cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fresh_process import SENTENCES
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from small_vectors import WORDS, word_vectors
from transformers import dynamic_module_utils

from mv_st import build_model, fit_components
from mv_st.cli import main
from mv_st.errors import UserError
from mv_st.modules import LinearMeanView
from mv_st.self_contained import save_self_contained
from mv_st.vectors import WordVectors

WITHOUT_PACKAGE = """
import importlib.abc, json, pickle, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mv_st":
            raise ModuleNotFoundError("No module named 'mv_st'", name="mv_st")

sys.meta_path.insert(0, Blocker())
import torch
from sentence_transformers import SentenceTransformer

torch.set_num_threads(1)
first, subword, folder, sentences = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
found = {}

def note(name, model):
    found[name] = {
        "similarity": model.encode(sentences).tolist(),
        "transfer": model.encode(sentences, representation="transfer").tolist(),
        "linear": model.encode(sentences, view="linear").tolist(),
    }

try:
    SentenceTransformer(first)
except ValueError as error:
    found["refusal"] = str(error)
model = SentenceTransformer(first, trust_remote_code=True)
note("first", model)
note("pickled", pickle.loads(pickle.dumps(model)))
model.save_pretrained(folder + "/copy")
copy = SentenceTransformer(folder + "/copy", trust_remote_code=True)
note("copy", copy)
copy.save_pretrained(folder + "/copy of copy")
note("copy of copy", SentenceTransformer(folder + "/copy of copy", trust_remote_code=True))
note("subword", SentenceTransformer(subword, trust_remote_code=True))
# As if it had been trained on: the host library writes a new card.
copy.model_card_data.add_tags("generated_from_trainer")
copy.save_pretrained(folder + "/trained")
try:
    type(model[0])("missing.vec")
except ModuleNotFoundError as error:
    found["needs"] = error.name
found["imported"] = [name for name in sys.modules if name.partition(".")[0] == "mv_st"]
print(json.dumps(found))
"""

NAMES = ["first", "pickled", "copy", "copy of copy"]


def run_without_package(code: str, home: Path, *arguments: str, **environment: str) -> Any:
    """Run code in an isolated process with a home of its own; it prints JSON as its last line."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=home,
        env=os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"} | environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module", autouse=True)
def _place_for_code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Code of models that this process loads is copied to a folder of the tests, not of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        patch.setattr(sys, "path", list(sys.path))
        yield


@pytest.fixture(scope="module")
def small_model() -> SentenceTransformer:
    return fit_components(build_model(word_vectors(WORDS), hidden_size=4, seed=0), SENTENCES)


@pytest.fixture(scope="module")
def subword_model(fasttext_file: tuple[Path, Any]) -> SentenceTransformer:
    return build_model(fasttext_file[0], hidden_size=4, oov="subword", seed=0)


@pytest.fixture(scope="module")
def without_package(
    small_model: SentenceTransformer, subword_model: SentenceTransformer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What a process that cannot import mv_st makes of such models, and `folder`, where it saved copies."""
    folder = tmp_path_factory.mktemp("alone")
    save_self_contained(small_model, folder / "first")
    save_self_contained(subword_model, folder / "subword")
    arguments = [str(folder / "first"), str(folder / "subword"), str(folder), json.dumps(SENTENCES)]
    return run_without_package(WITHOUT_PACKAGE, folder, *arguments) | {"folder": folder}


def expected(model: SentenceTransformer) -> dict[str, np.ndarray]:
    return {
        "similarity": model.encode(SENTENCES),
        "transfer": model.encode(SENTENCES, representation="transfer"),
        "linear": model.encode(SENTENCES, view="linear"),
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["similarity", "transfer", "linear"])
def test_equal_vectors_without_mv_st(
    without_package: dict[str, Any], small_model: SentenceTransformer, name: str, kind: str
) -> None:
    assert without_package["imported"] == []
    found = np.array(without_package[name][kind])
    np.testing.assert_allclose(found, expected(small_model)[kind], atol=1e-6)


def test_subwords_without_mv_st(without_package: dict[str, Any], subword_model: SentenceTransformer) -> None:
    found = np.array(without_package["subword"]["similarity"])
    np.testing.assert_allclose(found, subword_model.encode(SENTENCES), atol=1e-6)


def test_the_flag_is_needed(without_package: dict[str, Any]) -> None:
    assert "trust_remote_code=True" in without_package["refusal"]


def test_what_only_the_package_can_do_asks_for_it(without_package: dict[str, Any]) -> None:
    assert without_package["needs"] == "mv_st"


@pytest.mark.parametrize("name", ["first", "copy", "copy of copy"])
def test_requires_no_mv_st(without_package: dict[str, Any], name: str) -> None:
    """The test process has the distribution installed, so the host library would not complain."""
    config = json.loads((without_package["folder"] / name / "config_sentence_transformers.json").read_text())
    assert config["requirements"] == {}
    modules = json.loads((without_package["folder"] / name / "modules.json").read_text())
    assert {module["type"].partition(".")[0] for module in modules} == {"modeling_mv_st"}


@pytest.mark.parametrize("name", ["first", "copy", "trained"])
def test_the_card_says_how_to_load_it(without_package: dict[str, Any], name: str) -> None:
    card = (without_package["folder"] / name / "README.md").read_text(encoding="utf-8")
    assert 'SentenceTransformer("sentence_transformers_model_id", trust_remote_code=True)' in card
    assert "pip install mv-st" not in card
    assert "import mv_st" not in card


def test_the_host_library_follows_all_imports(without_package: dict[str, Any]) -> None:
    """It finds them by a pattern, also in strings and comments."""
    folder = without_package["folder"] / "first"
    found = {Path(file) for file in dynamic_module_utils.get_relative_import_files(folder / "modeling_mv_st.py")}
    assert found == set(folder.glob("mv_st_*.py"))


def test_where_mv_st_is_installed(without_package: dict[str, Any], small_model: SentenceTransformer) -> None:
    """Its own classes are used, with the flag or without; the code in the folder is not run."""
    for arguments in ({}, {"trust_remote_code": True}):
        loaded = SentenceTransformer(str(without_package["folder"] / "first"), **arguments)
        assert type(loaded[0]) is type(small_model[0])
        np.testing.assert_array_equal(loaded.encode(SENTENCES), small_model.encode(SENTENCES))


def test_saves_a_loaded_one_again(without_package: dict[str, Any], tmp_path: Path) -> None:
    """Of classes of mv_st, and of classes from the code in the folder, as a model has that was loaded before mv_st."""
    folder = str(without_package["folder"] / "first")
    loaded = SentenceTransformer(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SentenceTransformer, "_module_classes", {})
        with_its_code = SentenceTransformer(folder, trust_remote_code=True)
        assert type(with_its_code[0]) is not type(loaded[0])
        for number, model in enumerate((loaded, with_its_code)):
            save_self_contained(model, tmp_path / str(number))
            again = SentenceTransformer(str(tmp_path / str(number)), trust_remote_code=True)
            np.testing.assert_array_equal(again.encode(SENTENCES), loaded.encode(SENTENCES))


def test_with_stock_modules(vectors: WordVectors, tmp_path: Path) -> None:
    model = SentenceTransformer(modules=[*build_model(vectors, hidden_size=4, seed=0), Normalize()])
    save_self_contained(model, tmp_path / "model")
    loaded = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True)
    np.testing.assert_allclose(loaded.encode(SENTENCES), model.encode(SENTENCES), atol=1e-6)


class OwnView(LinearMeanView):
    """A view that mv_st does not know."""


def test_mistakes_are_explained(vectors: WordVectors, tmp_path: Path) -> None:
    modules = list(build_model(vectors, hidden_size=4, views=["linear"]))
    modules[1] = OwnView(6, 8, "linear")
    with pytest.raises(UserError, match=r"OwnView is defined in .*outside of mv_st"):
        save_self_contained(SentenceTransformer(modules=modules), tmp_path / "model")
    with pytest.raises(UserError, match="only an mv_st model"):
        save_self_contained(SentenceTransformer(modules=[Normalize()]), tmp_path / "model")
    assert not (tmp_path / "model").exists()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").touch()
    with pytest.raises(UserError, match="not empty"):
        save_self_contained(build_model(vectors, hidden_size=4), tmp_path / "model")


def test_leaves_the_model_alone(model: SentenceTransformer, tmp_path: Path) -> None:
    save_self_contained(model, tmp_path / "alone")
    model.save_pretrained(str(tmp_path / "plain"))
    assert not list((tmp_path / "plain").rglob("*.py"))
    assert "pip install mv-st" in (tmp_path / "plain" / "README.md").read_text(encoding="utf-8")
    SentenceTransformer(str(tmp_path / "plain"))


def test_command_line(model: SentenceTransformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.save_pretrained(str(tmp_path / "model"))
    arguments = ["export", str(tmp_path / "model"), str(tmp_path / "alone"), "--self-contained"]
    assert main(arguments) == 0
    assert f"the self-contained model is in {tmp_path / 'alone'}" in capsys.readouterr().err
    loaded = SentenceTransformer(str(tmp_path / "alone"), trust_remote_code=True)
    np.testing.assert_allclose(loaded.encode(SENTENCES), model.encode(SENTENCES), atol=1e-6)
    assert main(arguments) == 1
    assert "not empty" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments, "--view", "linear"])
