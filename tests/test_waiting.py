"""The choice of how OpenMP threads wait, which has to be made before torch is loaded."""

from __future__ import annotations

import os
import sys

import pytest
from fresh_process import run_python

from mv_st._waiting import wait_passively

IMPORT = "import {}; import json, os; print(json.dumps(os.environ.get('OMP_WAIT_POLICY')))"


@pytest.fixture(autouse=True)
def _nobody_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "")  # so that it is put back afterwards
    monkeypatch.delenv("OMP_WAIT_POLICY")


def test_chosen_on_import() -> None:
    assert run_python(IMPORT.format("mv_st")) == "passive"


def test_the_users_choice_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert run_python(IMPORT.format("mv_st")) == "active"


def test_not_where_it_comes_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "torch" in sys.modules
    wait_passively()
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.delitem(sys.modules, "torch")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
