"""A model whose code lies beside its weights, for people who have not installed mv-st."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from ._registration import CODE
from .bundle import flat_files, flat_name
from .errors import UserError
from .files import whole_directory

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MODEL_CARD = "mv_st.model_card"
WORDS = "mv_st.modules.fasttext_embedding"

_INTRODUCTION = '''"""The modules of this model, and with the files that this one imports all the code that it needs.

    SentenceTransformer("this folder or repository", trust_remote_code=True)

Made from the sources of mv-st {version}. SPDX-License-Identifier: Apache-2.0
"""
'''

_ENDING = """
for module_class in [{classes}]:
    # When the model is saved again, sentence-transformers copies the file that a class says it is in, and what that
    # file imports. It looks for all classes in the folder of the first module, so each must say it is in this file.
    module_class.__module__ = __name__

REQUIREMENT.clear()  # a copy of this model does not need mv-st either
MultiViewModelCardData.self_contained = True
"""


def save_self_contained(model: SentenceTransformer, path: str | Path, *, overwrite: bool = False) -> None:
    """Save a model together with the code of its modules.

    `SentenceTransformer(path, trust_remote_code=True)` then works where mv_st is not installed, also for copies that
    are made by saving the loaded model again.

    Args:
        model: A model made of the modules of mv_st, and of stock modules if you like.
        path: Directory to write.
        overwrite: Replace the directory.
    """
    check_self_contained(model)
    with whole_directory(path, overwrite=overwrite) as directory:
        write_self_contained(model, directory)


def check_self_contained(model: SentenceTransformer) -> None:
    """Raise a UserError if there is no way to save the code of a model."""
    from .modules import FastTextEmbedding

    if _has_its_code(model):
        return
    if not isinstance(model[0], FastTextEmbedding):
        raise UserError("only an mv_st model can be saved with its code; this one does not begin with word vectors")
    for module in model:
        origin = type(module).__module__
        if not origin.startswith(("mv_st.modules.", "sentence_transformers.")):
            raise UserError(
                f"{type(module).__name__} is defined in {origin}, outside of mv_st.modules: "
                "a model with such a module cannot be saved with its code"
            )


def write_self_contained(model: SentenceTransformer, directory: Path) -> None:
    """Write a model that `check_self_contained` accepts, and its code, to a directory that exists."""
    from .model_card import write_model_card

    model.save_pretrained(str(directory))
    before = getattr(model.model_card_data, "self_contained", False)
    model.model_card_data.self_contained = True  # type: ignore[attr-defined]
    write_model_card(model, directory)
    model.model_card_data.self_contained = before  # type: ignore[attr-defined]
    if not _has_its_code(model):
        for name, source in _code(model).items():
            (directory / name).write_text(source, encoding="utf-8")
        _point_to_code(directory)


def _has_its_code(model: SentenceTransformer) -> bool:
    """Whether a model was loaded from a folder of this kind; the host library then saves the code by itself."""
    return type(model[0]).__module__.rpartition(".")[2] == CODE


def _code(model: SentenceTransformer) -> dict[str, str]:
    """File name -> source code of all that the modules of a model need."""
    ours = {type(module): type(module).__module__ for module in model if type(module).__module__.startswith("mv_st.")}
    files = flat_files([*ours.values(), MODEL_CARD])
    imports = [f"from .{flat_name(origin)} import {cls.__name__}" for cls, origin in ours.items()]
    imports.append(f"from .{flat_name(WORDS)} import REQUIREMENT")
    imports.append(f"from .{flat_name(MODEL_CARD)} import MultiViewModelCardData")
    classes = ", ".join(cls.__name__ for cls in ours)
    introduction = _INTRODUCTION.format(version=__version__)
    files[f"{CODE}.py"] = "\n".join([introduction, *imports, _ENDING.format(classes=classes)])
    return files


def _point_to_code(directory: Path) -> None:
    """Let the list of modules name the code in this folder, and no longer require mv-st."""
    modules = json.loads((directory / "modules.json").read_text(encoding="utf-8"))
    for module in modules:
        if module["type"].startswith("mv_st."):
            module["type"] = f"{CODE}.{module['type'].rpartition('.')[2]}"
    (directory / "modules.json").write_text(json.dumps(modules, indent=2), encoding="utf-8")
    path = directory / "config_sentence_transformers.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["requirements"].pop("mv-st")
    path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
