from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from mv_st.errors import UserError
from mv_st.presets import PRESETS, Settings, settings_for


def test_sizes_of_the_presets() -> None:
    assert {name: settings.hidden_size for name, settings in PRESETS.items()} == {
        "small": 256,
        "base": 512,
        "features": 512,
        "paper": 1024,
    }


def test_paper_is_the_paper() -> None:
    expected = {
        "hidden_size": 1024,
        "views": ["gru", "linear"],
        "agreement": "cross",
        "batch_size": 512,
        "window": 3,
        "blocks": 1,
        "include_self": True,
        "train_on": "last",
        "fade_out": False,
        "gentle_start": False,
        "weighting": "none",
        "temperature": 1.0,
        "n_components": 1,
        "spelling": False,
        "spelling_codes": 0,
        "whiten_words": False,
        "linear_first": 0,
        "whitening": 0.0,
        "power_iterations": 10,
        "learning_rate": 5e-4,
        "clip_norm": 5.0,
        "precision": "float32",
        "max_train_length": 40,
        "max_seq_length": 512,
    }
    assert expected.items() <= settings_for("paper").to_dict().items()
    assert settings_for("paper") == Settings()


@pytest.mark.parametrize("preset", list(PRESETS))
def test_settings_survive_json(preset: str) -> None:
    settings = settings_for(preset)
    assert Settings(**json.loads(json.dumps(settings.to_dict())) | {"views": settings.views}) == settings


def test_changes_and_none() -> None:
    settings = settings_for("base", window=5, blocks=None, views=["linear", "linear"])
    assert (settings.window, settings.blocks, settings.views) == (5, 32, ("linear", "linear"))
    assert settings.hidden_size == 512
    assert settings_for("small", views="gru,gru").views == ("gru", "gru")
    assert settings_for("small").include_self is False
    assert settings_for("small", include_self=True).include_self is True


@pytest.mark.parametrize(
    ("preset", "batch_size", "blocks"),
    [
        ("small", 512, 32),
        ("small", 256, 16),
        ("small", 100, 1),
        ("small", 8, 1),
        ("paper", 256, 1),
        ("paper", 1024, 2),
    ],
)
def test_runs_of_sentences_stay_as_long_in_batches_of_other_sizes(preset: str, batch_size: int, blocks: int) -> None:
    assert settings_for(preset, batch_size=batch_size).blocks == blocks


def test_blocks_that_are_given_are_kept() -> None:
    assert settings_for("small", batch_size=256, blocks=2).blocks == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"windw": 3}, "no setting 'windw'; the settings are agreement, batch_size"),
        ({"views": ()}, "views must be one or more of gru, linear"),
        ({"views": "tree"}, "views must be one or more of gru, linear, not 'tree'"),
        ({"agreement": "none"}, "agreement must be cross, all or within, not 'none'"),
        ({"train_on": "first"}, "train_on must be last or mean, not 'first'"),
        ({"weighting": "tfidf"}, "weighting must be none, fixed or learned, not 'tfidf'"),
        ({"precision": "float16"}, "precision must be float32, bfloat16 or auto, not 'float16'"),
        ({"hidden_size": 0}, "hidden_size must be at least 1, not 0"),
        ({"batch_size": 1}, "batch_size must be at least 2, not 1"),
        ({"window": -1}, "window must be at least 0, not -1"),
        ({"n_components": -1}, "n_components must be at least 0, not -1"),
        ({"whitening": 0.7}, "whitening must be between 0 and 0.5, not 0.7"),
        ({"temperature": 0.0}, "temperature must be above 0, not 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0, not nan"),
        ({"window": 0, "include_self": False}, "window=0 leaves a sentence no neighbour"),
        ({"batch_size": 10, "blocks": 4}, "a batch of 10 sentences cannot be divided into 4 blocks"),
    ],
)
def test_mistakes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings_for("small", **changes)


def test_no_such_preset() -> None:
    with pytest.raises(UserError, match="no preset 'large'; choose one of small, base, features, paper"):
        settings_for("large")


def test_every_setting_is_documented() -> None:
    for field in fields(Settings):
        assert f"        {field.name}: " in (Settings.__doc__ or "")
