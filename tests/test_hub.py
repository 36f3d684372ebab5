"""Pushing to a hub on the loopback interface by the real client, and loading from it in fresh processes."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from fresh_process import SENTENCES
from hub_server import Hub, HubError, running
from huggingface_hub import constants
from sentence_transformers import SentenceTransformer
from small_vectors import WORDS, word_vectors
from test_self_contained import run_without_package

from mv_st import build_model, export_static, fit_components
from mv_st.cli import main
from mv_st.errors import UserError
from mv_st.evaluation.results import EvaluationResults, ModelScores
from mv_st.evaluation.scores import Correlation, STSScores
from mv_st.hub import push_to_hub

ANN, BOB = "hf_AnnsVerySecretToken", "hf_BobsVerySecretToken"
USERS = {ANN: "ann", BOB: "bob"}

LOAD = """
import json, sys
import mv_st
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("ann/model")
print(json.dumps(model.encode(json.loads(sys.argv[1])).tolist()))
"""

LOAD_ALONE = """
import importlib.abc, json, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mv_st":
            raise ModuleNotFoundError("No module named 'mv_st'", name="mv_st")

sys.meta_path.insert(0, Blocker())
from sentence_transformers import SentenceTransformer

sentences = json.loads(sys.argv[1])
model = SentenceTransformer("ann/alone", trust_remote_code=True)
model.save_pretrained("copy")
copy = SentenceTransformer("copy", trust_remote_code=True)
print(json.dumps([m.encode(sentences, representation="transfer").tolist() for m in (model, copy)]))
"""


@pytest.fixture(scope="module")
def small_model() -> SentenceTransformer:
    return fit_components(build_model(word_vectors(WORDS), hidden_size=4, seed=0), SENTENCES)


@pytest.fixture(scope="module")
def folder(small_model: SentenceTransformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    record = {"corpus": {"sources": ["letters.txt"], "sentences": 12}, "history": [], "steps": 7, "sentences_seen": 84}
    (folder / "training.json").write_text(json.dumps(record))
    small_model.save_pretrained(str(folder))
    return folder


def run(arguments: list[str], hub: Hub, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=home,
        env=os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"} | environment,
    )


class TestFreshProcesses:
    """The command line and the loading as users see them, with environment variables alone."""

    @pytest.fixture(scope="class")
    def hub(self) -> Iterator[Hub]:
        with running(Hub(USERS, large_files=(".safetensors",))) as hub:
            yield hub

    @pytest.fixture(scope="class")
    def home(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("home")

    @pytest.fixture(scope="class")
    def pushed(self, hub: Hub, home: Path, folder: Path) -> subprocess.CompletedProcess[str]:
        """Large files go over LFS, as they do for people without hf-xet."""
        arguments = ["-m", "mv_st", "-v", "push", str(folder), "ann/model", "--license", "mit"]
        return run(arguments, hub, home, HF_TOKEN=ANN, HF_HUB_DISABLE_XET="1")

    def test_push(self, pushed: subprocess.CompletedProcess[str], hub: Hub, folder: Path) -> None:
        assert pushed.returncode == 0, pushed.stderr
        assert pushed.stdout == f"{hub.url}/ann/model\n"
        files = hub.repositories["ann/model"].files
        assert files["model.safetensors"] == (folder / "model.safetensors").read_bytes()
        assert files["training.json"] == (folder / "training.json").read_bytes()
        assert any(request.startswith("PUT /lfs/") for request in hub.requests)
        card = files["README.md"].decode()
        assert 'SentenceTransformer("ann/model")' in card
        assert "letters.txt: 12 sentences" in card
        assert "license: mit" in card

    def test_load(
        self, pushed: subprocess.CompletedProcess[str], hub: Hub, home: Path, small_model: SentenceTransformer
    ) -> None:
        assert pushed.returncode == 0, pushed.stderr
        done = run(["-c", LOAD, json.dumps(SENTENCES)], hub, home)
        assert done.returncode == 0, done.stderr
        found = np.array(json.loads(done.stdout.splitlines()[-1]))
        np.testing.assert_allclose(found, small_model.encode(SENTENCES), atol=1e-6)

    def test_load_without_mv_st(
        self, hub: Hub, home: Path, folder: Path, small_model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connect(hub, home, monkeypatch)
        assert main(["push", str(folder), "ann/alone", "--self-contained"]) == 0
        environment = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
        found = run_without_package(LOAD_ALONE, home, json.dumps(SENTENCES), **environment)
        for vectors in found:
            expected = small_model.encode(SENTENCES, representation="transfer")
            np.testing.assert_allclose(np.array(vectors), expected, atol=1e-6)

    def test_the_token_is_nowhere(
        self, pushed: subprocess.CompletedProcess[str], hub: Hub, home: Path, folder: Path
    ) -> None:
        assert ANN not in pushed.stdout + pushed.stderr
        for path in (*home.rglob("*"), *folder.rglob("*")):
            assert not path.is_file() or ANN.encode() not in path.read_bytes(), path
        for repository in hub.repositories.values():
            assert ANN not in repr(repository)


def connect(hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client in this process, which is switched off for tests, talk to a hub, with Ann's token."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", bool(hub.large_files))
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setenv("HF_TOKEN", ANN)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running(Hub(USERS)) as hub:
        connect(hub, tmp_path, monkeypatch)
        yield hub


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a push ends with."""
    assert main(["push", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert ANN not in line
    assert BOB not in line
    return line


class TestRefusals:
    """One line each, exit code 1, and nothing has been uploaded."""

    def test_existing(self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        hub.add("ann/model")
        line = failure(capsys, str(folder), "ann/model")
        assert line.startswith("mv-st: cannot push to ann/model: it exists already; give another name, or --overwrite")
        assert hub.repositories["ann/model"].files == {}

    def test_private_but_existing_and_public(self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        hub.add("ann/model")
        line = failure(capsys, str(folder), "ann/model", "--private", "--overwrite")
        assert "ann/model exists and is public" in line
        assert hub.repositories["ann/model"].files == {}

    @pytest.mark.parametrize("private", [True, False])
    def test_of_somebody_else(self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str], private: bool) -> None:
        hub.add("bob/model", private=private)
        for options in ([], ["--overwrite"]):
            line = failure(capsys, str(folder), "bob/model", *options)
            assert line.startswith("mv-st: cannot push to bob/model: this token may not write there")
        assert hub.repositories["bob/model"].files == {}

    def test_unknown_token(
        self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HF_TOKEN", "hf_unknown")
        line = failure(capsys, str(folder), "ann/model")
        assert "the Hub does not know this token" in line
        assert "hf_unknown" not in line

    def test_token_that_is_none(
        self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HF_TOKEN", "hf_two hf_words")
        line = failure(capsys, str(folder), "ann/model")
        assert "characters that no token has" in line
        assert "hf_" not in line

    def test_no_token(
        self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("HF_TOKEN")
        line = failure(capsys, str(folder), "ann/model")
        assert line == "mv-st: not logged in to the Hugging Face Hub; run `hf auth login` or set HF_TOKEN"

    def test_no_network(
        self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        line = failure(capsys, str(folder), "ann/model")
        assert line.startswith("mv-st: cannot push to ann/model: no connection to http://127.0.0.1:9 (")

    def test_switched_off(
        self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert "HF_HUB_OFFLINE" in failure(capsys, str(folder), "ann/model")

    def test_name_that_is_none(self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        line = failure(capsys, str(folder), "ann/my/model")
        assert "that is no name of a repository" in line

    def test_trouble_at_the_hub(
        self, hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*arguments: Any) -> None:
            raise HubError(418, "I am a teapot")

        monkeypatch.setattr(hub, "commit", refuse)
        line = failure(capsys, str(folder), "ann/model")
        assert line == "mv-st: cannot push to ann/model: the Hub answered with HTTP status 418 (I am a teapot)"

    def test_static_models_have_no_code(self, hub: Hub, small_model: SentenceTransformer, tmp_path: Path) -> None:
        static = export_static(small_model, tmp_path / "static")
        with pytest.raises(UserError, match="only an mv_st model"):
            push_to_hub(static, "ann/static", self_contained=True)
        with pytest.raises(UserError, match="another kind of model"):
            push_to_hub(static, "ann/static", results="results.json")
        assert hub.repositories == {}


def test_private(hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", str(folder), "ann/model", "--private"]) == 0
    assert capsys.readouterr() == (f"{hub.url}/ann/model\n", "")
    assert hub.repositories["ann/model"].private
    assert main(["push", str(folder), "ann/model", "--private", "--overwrite"]) == 0
    with pytest.raises(huggingface_hub.errors.RepositoryNotFoundError):
        huggingface_hub.HfApi(token=BOB).model_info("ann/model")


def test_name_without_a_user(hub: Hub, small_model: SentenceTransformer) -> None:
    assert push_to_hub(small_model, "model", token=BOB) == f"{hub.url}/bob/model"
    assert 'SentenceTransformer("bob/model")' in hub.repositories["bob/model"].files["README.md"].decode()


def test_static_model(hub: Hub, small_model: SentenceTransformer, tmp_path: Path) -> None:
    static = export_static(small_model, tmp_path / "static")
    push_to_hub(static, "ann/static")
    assert "model.safetensors" in hub.repositories["ann/static"].files
    assert "mv_st" not in hub.repositories["ann/static"].files["README.md"].decode()


class TestOverwriting:
    def test_leaves_nothing_behind(self, hub: Hub, folder: Path) -> None:
        main(["push", str(folder), "ann/model", "--self-contained"])
        files = hub.repositories["ann/model"].files
        assert {"modeling_mv_st.py", "1_BiGRUView/model.safetensors", "training.json"} <= set(files)
        files |= {"9_OldView/model.safetensors": b"", "NOTES.txt": b"mine", "data/table.csv": b"mine"}
        assert main(["push", str(folder), "ann/model", "--overwrite"]) == 0
        assert not [path for path in files if path.endswith(".py") or path.startswith("9_")]
        assert {"1_BiGRUView/model.safetensors", "NOTES.txt", "data/table.csv"} <= set(files)
        assert "pip install mv-st" in files["README.md"].decode()

    def test_keeps_the_card_of_the_owner(self, hub: Hub, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        main(["push", str(folder), "ann/model"])
        files = hub.repositories["ann/model"].files
        files["README.md"] = b"---\nlicense: mit\n---\nMy own words.\n"
        with caplog.at_level(logging.WARNING):
            assert main(["push", str(folder), "ann/model", "--overwrite"]) == 0
        assert files["README.md"].endswith(b"My own words.\n")
        assert "the model card of ann/model is not one of ours" in caplog.text

    def test_keeps_a_card_that_was_written_beside_the_model(
        self, hub: Hub, small_model: SentenceTransformer, tmp_path: Path
    ) -> None:
        small_model.save_pretrained(str(tmp_path / "model"))
        (tmp_path / "model" / "README.md").write_text("---\nlicense: mit\n---\nMy own words.\n")
        assert main(["push", str(tmp_path / "model"), "ann/model"]) == 0
        assert hub.repositories["ann/model"].files["README.md"].endswith(b"My own words.\n")

    def test_the_same_again(self, hub: Hub, folder: Path) -> None:
        main(["push", str(folder), "ann/model"])
        before = dict(hub.repositories["ann/model"].files)
        assert main(["push", str(folder), "ann/model", "--overwrite"]) == 0
        assert hub.repositories["ann/model"].files == before


def test_push_to_hub_of_the_host_library(hub: Hub, folder: Path) -> None:
    model = SentenceTransformer(str(folder))
    model.push_to_hub("ann/model")
    repository = hub.repositories["ann/model"]
    assert 'SentenceTransformer("ann/model")' in repository.files["README.md"].decode()
    assert repository.files["model.safetensors"] == (folder / "model.safetensors").read_bytes()


def test_a_model_is_not_made_from_itself(hub: Hub, folder: Path, small_model: SentenceTransformer) -> None:
    main(["push", str(folder), "ann/model"])
    loaded = SentenceTransformer("ann/model")
    np.testing.assert_array_equal(loaded.encode(SENTENCES), small_model.encode(SENTENCES))
    loaded.model_card_data.base_model = "ann/model"  # which the host library asks the public Hub about
    for name, mentioned in (("ann/model", False), ("ann/other", True)):
        push_to_hub(loaded, name, overwrite=True)
        card: Any = huggingface_hub.ModelCard(hub.repositories[name].files["README.md"].decode())
        assert (card.data.base_model == "ann/model") is mentioned


def test_what_one_card_says_does_not_belong_to_the_model(hub: Hub, small_model: SentenceTransformer) -> None:
    before = dict(vars(small_model.model_card_data))
    push_to_hub(small_model, "ann/model", license="mit", language="en", self_contained=True)
    card: Any = huggingface_hub.ModelCard(hub.repositories["ann/model"].files["README.md"].decode())
    assert (card.data.license, card.data.language) == ("mit", ["en"])
    assert vars(small_model.model_card_data) == before


def test_results_go_into_the_card(hub: Hub, folder: Path, tmp_path: Path) -> None:
    score = Correlation(0.5, 0.6, 10)
    scores = ModelScores("somewhere", "stored", tasks={"sts12": STSScores({"all": score}, score, score, score)})
    EvaluationResults([scores], {}, [], {}).save(tmp_path / "results.json")
    assert main(["push", str(folder), "ann/model", "--results", str(tmp_path / "results.json")]) == 0
    card: Any = huggingface_hub.ModelCard(hub.repositories["ann/model"].files["README.md"].decode())
    assert [result.metric_value for result in card.data.eval_results] == [0.5, 0.6]
    assert main(["push", str(folder), "ann/other", "--results", str(tmp_path / "missing.json")]) == 1
    assert "ann/other" not in hub.repositories
