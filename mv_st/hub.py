"""Models to the Hugging Face Hub."""

from __future__ import annotations

import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import UserError

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

logger = logging.getLogger(__name__)

RECORD_FILES = ("training.json", "training.png")
REPLACED = ("[0-9]*_*/*", "modeling_mv_st.py", "mv_st_*.py", *RECORD_FILES)
"""Files of an earlier push that would be left over; all others in a repository are its owner's business."""


def push_to_hub(
    model: SentenceTransformer,
    repo_id: str,
    *,
    private: bool = False,
    overwrite: bool = False,
    self_contained: bool = False,
    results: str | Path | None = None,
    folder: str | Path | None = None,
    license: str | None = None,
    language: str | None = None,
    token: str | None = None,
) -> str:
    """Upload a model with its card to the Hugging Face Hub.

    `model.push_to_hub(repo_id)` works too; this function can do more, and explains failures in one line.

    Args:
        model: The model.
        repo_id: `user/name`.
        private: Make the repository private. One that exists and is public is refused.
        overwrite: Put a new version into a repository that exists. Its card stays if it is not one of ours.
        self_contained: Upload the code of the modules too, see `save_self_contained`.
        results: File that `mv-st evaluate --output` wrote; its scores go into the card.
        folder: Folder of the model, from which `training.json` and `training.png` are uploaded.
        license: Licence of the model, such as `apache-2.0`.
        language: Language of the model, such as `en`.
        token: Access token; the one that `hf auth login` stored, or `HF_TOKEN`, if left out.

    Returns:
        Address of the repository.
    """
    from huggingface_hub import HfApi, get_token

    from .self_contained import check_self_contained

    token = token or get_token()
    if token is None:
        raise UserError("not logged in to the Hugging Face Hub; run `hf auth login` or set HF_TOKEN")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UserError("the access token holds characters that no token has; run `hf auth login` with a new copy")
    if self_contained:
        check_self_contained(model)
    card = model.model_card_data
    api = HfApi(token=token)
    with _unchanged(card), _explained(api, repo_id, token), _quiet_off_a_terminal():
        card.license = license or card.license
        card.language = [language] if language else card.language
        if results is not None:
            _add_results(card, results, folder)
        address = api.create_repo(repo_id, private=private or None, exist_ok=overwrite)
        repo_id = address.repo_id
        if private and not api.repo_info(repo_id).private:
            raise UserError(
                f"{repo_id} exists and is public; make it private on the Hub first, or leave --private out"
            )
        card.set_model_id(repo_id)
        if card.base_model == repo_id:
            card.base_model = None  # a new version of itself
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary) / "model"
            directory.mkdir()
            _write(model, directory, self_contained, folder)
            keeps_card = overwrite and _has_a_card_of_its_own(api, repo_id, temporary)
            if keeps_card:
                logger.warning("the model card of %s is not one of ours and stays as it is", repo_id)
            api.upload_folder(
                repo_id=repo_id,
                folder_path=directory,
                commit_message="Upload model",
                ignore_patterns=["README.md"] if keeps_card else None,
                delete_patterns=list(REPLACED) if overwrite else None,
            )
    return str(address)


def _add_results(card: SentenceTransformerModelCardData, results: str | Path, folder: str | Path | None) -> None:
    from .card_results import read_card_results
    from .model_card import MultiViewModelCardData

    if not isinstance(card, MultiViewModelCardData):
        raise UserError("results go into the card of an mv_st model; this is another kind of model")
    card.evaluation, card.evaluation_tables = read_card_results(results, None if folder is None else str(folder))


def _write(model: SentenceTransformer, directory: Path, self_contained: bool, folder: str | Path | None) -> None:
    from .model_card import write_model_card
    from .self_contained import write_self_contained

    for name in RECORD_FILES if folder is not None else ():
        if (Path(folder or "") / name).is_file():
            shutil.copy(Path(folder or "") / name, directory / name)
    if self_contained:
        write_self_contained(model, directory)
    else:
        model.save_pretrained(str(directory))
        write_model_card(model, directory)


def _has_a_card_of_its_own(api: HfApi, repo_id: str, temporary: str) -> bool:
    from .model_card import OURS

    if not api.file_exists(repo_id, "README.md"):
        return False
    path = api.hf_hub_download(repo_id, "README.md", cache_dir=temporary)
    return OURS not in Path(path).read_text(encoding="utf-8")


@contextmanager
def _unchanged(card: SentenceTransformerModelCardData) -> Iterator[None]:
    """What is said in the card of one push does not belong to the model."""
    before = dict(vars(card))
    try:
        yield
    finally:
        vars(card).clear()
        vars(card).update(before)


@contextmanager
def _explained(api: HfApi, repo_id: str, token: str) -> Iterator[None]:
    """Turn whatever goes wrong into one line, in which the token does not occur."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # which exceptions there are depends on the HTTP library of huggingface_hub
        message = _reason(error, api.endpoint).replace(token, "***")
        raise UserError(f"cannot push to {repo_id}: {message}") from None


def _reason(error: BaseException, endpoint: str) -> str:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    for link in chain:
        if isinstance(link, HfHubHTTPError):
            return _http_reason(link.response.status_code, link.server_message or "")
        if isinstance(link, HFValidationError):
            return f"that is no name of a repository, such as user/name ({_first_line(link)})"
        if isinstance(link, OfflineModeIsEnabled):
            return "the Hub is switched off by HF_HUB_OFFLINE"
    for link in chain:
        if isinstance(link, OSError) or type(link).__module__.startswith(("httpx", "httpcore", "requests")):
            return f"no connection to {endpoint} ({_first_line(link)})"
    return _first_line(error)


def _http_reason(status: int, server_message: str) -> str:
    said = f" ({' '.join(server_message.split())})" if server_message else ""
    if status == 401:
        return "the Hub does not know this token; make one with write access and run `hf auth login`"
    if status == 403:
        return f"this token may not write there; check the name of the repository and the rights of the token{said}"
    if status == 404:
        return f"there is no such repository, or this token may not see it{said}"
    if status == 409:
        return "it exists already; give another name, or --overwrite to put a new version into it"
    return f"the Hub answered with HTTP status {status}{said}"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def _quiet_off_a_terminal() -> Iterator[None]:
    """The client's progress bars are for terminals only."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    quiet = not sys.stderr.isatty() and not are_progress_bars_disabled()
    if quiet:
        disable_progress_bars()
    try:
        yield
    finally:
        if quiet:
            enable_progress_bars()
