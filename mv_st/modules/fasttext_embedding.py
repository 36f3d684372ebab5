"""First module: text to words, words to frozen vectors."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ..subwords import SubwordTable
from ..vectors import WordVectors, load_vectors
from .batched_inference import install as install_batched_inference
from .byte_rows import from_bytes, to_bytes
from .view import unit_length
from .weights import hub_arguments, save_config_and_weights
from .word_tokenizer import MEMO_CHARACTERS, UNKNOWN, UNKNOWN_ID, WordLookup, build_tokenizer
from .words import Words

if TYPE_CHECKING:
    from sentence_transformers.base.model import BaseModel

logger = logging.getLogger(__name__)

LONGEST_WORD = 200
"""Number of characters after which something is no word but data; it gets no subwords, which could be millions."""

REQUIREMENT = {"mv-st": {"specifier": ">=0.1", "reason": "Its modules read the words and compute the views."}}


class FastTextEmbedding(InputModule):
    """Tokenises text and looks up frozen word vectors.

    The vectors are a buffer: saved with the model, never trained. A word is looked up in its exact form, then in lower
    case. A word in neither form is a zero vector, or, with `oov="subword"`, the mean of the vectors of its character
    n-grams. See `mv_st.modules.word_tokenizer` for what counts as a word, also in languages without spaces.

    Args:
        vectors: Word vectors: a `WordVectors`, a file that `load_vectors` reads, or a pair of words and array.
        oov: What an unknown word is: `"zero"` or `"subword"`, the latter with vectors that have subwords.
        max_seq_length: Number of words after which a text is cut, or None. A cut is logged once.
        max_vocab: Keep the first words only.
        dtype: How the vectors are stored: `"float32"` or `"float16"`. They are computed with in the type of the views.

    Example:
        >>> words = FastTextEmbedding((["good", "morning"], np.eye(2, dtype=np.float32)))
        >>> words.preprocess(["Good good morning!", ""])
        {'input_ids': tensor([1, 1, 2, 0, 0]), 'sentence_lengths': tensor([4, 1])}
    """

    config_file_name = "fasttext_embedding.json"
    config_keys = [
        "oov",
        "max_seq_length",
        "vocab_size",
        "embedding_dimension",
        "dtype",
        "subword_ngrams",
        "unknown_length",
        "saved_as",
    ]
    save_in_root = True
    forward_kwargs: set[str] = {"view", "representation"}

    def __init__(
        self,
        vectors: WordVectors | str | Path | tuple[Sequence[str], np.ndarray],
        oov: Literal["zero", "subword"] = "zero",
        max_seq_length: int | None = 512,
        max_vocab: int | None = None,
        dtype: Literal["float32", "float16"] | None = None,
    ) -> None:
        vectors = _as_word_vectors(vectors, max_vocab, dtype, want_subwords=oov == "subword")
        if oov == "subword" and vectors.subwords is None:
            raise UserError('oov="subword" needs vectors with subwords: a fastText .bin file, or train_vectors')
        if UNKNOWN in vectors.words:
            raise UserError(f"the vocabulary holds the word {UNKNOWN}, which stands for unknown words; rename it")
        matrix = np.zeros((len(vectors) + 1, vectors.dim), dtype=dtype or vectors.matrix.dtype)
        matrix[1:] = vectors.matrix  # row 0 is the unknown word
        self._set_up(
            build_tokenizer(vectors.words),
            torch.from_numpy(matrix),
            vectors.subwords if oov == "subword" else None,
            max_seq_length,
        )

    def _set_up(
        self, tokenizer: Tokenizer, vectors: Tensor, subwords: SubwordTable | None, max_seq_length: int | None
    ) -> None:
        super().__init__()
        self.max_seq_length = max_seq_length
        self.saved_as: Literal["int8"] | None = None
        self.unknown_length: float | None = None
        self.oov: Literal["zero", "subword"] = "zero" if subwords is None else "subword"
        self.subword_ngrams = None if subwords is None else [subwords.min_n, subwords.max_n, subwords.n_buckets]
        self.register_buffer("vectors", vectors)
        if subwords is not None:
            self.register_buffer("subword_vectors", torch.from_numpy(subwords.matrix).to(vectors.dtype))
            kept = np.arange(subwords.n_buckets) if subwords.bucket_ids is None else subwords.bucket_ids
            self.register_buffer("subword_buckets", torch.from_numpy(kept))
        self._memo_lock = Lock()  # texts may be encoded from several threads
        self.tokenizer = tokenizer
        self._logged_truncation = False

    @property
    def tokenizer(self) -> Tokenizer:
        """Defines what the words are, and their ids."""
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._start_memo()

    def _start_memo(self) -> None:
        # Subwords of the unknown words seen since the memo began: word i has the id -1 - i.
        self._unknown_words: list[np.ndarray] = []
        self._new_unknown_words: list[str] = []
        self._lookup = WordLookup(self._tokenizer, self._unknown_word_id)
        if self.subword_ngrams is not None:
            min_n, max_n, n_buckets = self.subword_ngrams
            kept = self.subword_buckets.cpu().numpy()
            # Only finds rows; the vectors stay in the buffer, so the table here is 0 wide.
            self._subwords = SubwordTable(np.zeros((len(kept), 0), np.float32), min_n, max_n, kept, n_buckets)

    def _unknown_word_id(self, word: str) -> int:
        if self.oov == "zero" or len(word) > LONGEST_WORD:
            return UNKNOWN_ID
        self._new_unknown_words.append(word)
        return -len(self._unknown_words) - len(self._new_unknown_words)

    def _find_subwords(self) -> None:
        """Find the subwords of the new unknown words, all at once, which takes a tenth of the time."""
        rows, starts = self._subwords.bags(self._new_unknown_words)
        self._unknown_words += np.split(rows, starts[1:-1])
        self._new_unknown_words = []

    @property
    def vocab_size(self) -> int:
        """Number of rows of the table: the words and the unknown word."""
        return len(self.vectors)

    @property
    def dtype(self) -> str:
        """The type in which the vectors are stored."""
        return str(self.vectors.dtype).removeprefix("torch.")

    @property
    def embedding_dimension(self) -> int:
        """Width of the word vectors."""
        return self.vectors.shape[1]

    def preprocess(  # type: ignore[override]
        self, inputs: Sequence[str], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Turn texts into word ids, all sentences one after another.

        Args:
            inputs: The texts.
            prompt: Put before each text.
            **kwargs: `max_length` overrides `max_seq_length`; the rest is for other modules.

        Returns:
            `input_ids` (T,), `sentence_lengths` (N,), and with unknown words that have subwords `subword_rows` and
            `subword_offsets`. An empty text counts as one unknown word.
        """
        check_texts(inputs)
        if prompt:
            inputs = self._prepend_prompt(list(inputs), prompt)
        with self._memo_lock:
            if self._lookup.characters > MEMO_CHARACTERS:
                self._start_memo()
            ids, lengths = self._lookup.batch(inputs)
            if self._new_unknown_words:
                self._find_subwords()
            unknown_words = self._unknown_words
        limit = kwargs.get("max_length") or self.max_seq_length
        if limit is not None and lengths.max(initial=0) > limit:
            ids, lengths = self._truncate(ids, lengths, limit)
        if not lengths.all():
            starts = lengths.cumsum() - lengths
            ids = np.insert(ids, starts[lengths == 0], UNKNOWN_ID)
            lengths = lengths.clip(1)
        features = {"input_ids": torch.from_numpy(ids), "sentence_lengths": torch.from_numpy(lengths)}
        if unknown_words:
            features |= _number_unknown_words(ids, unknown_words)
        return features

    def _truncate(self, ids: np.ndarray, lengths: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
        if not self._logged_truncation:
            self._logged_truncation = True
            logger.warning(
                "a text of %d words was cut to %d (max_seq_length); further cuts are not reported",
                lengths[lengths > limit][0],
                limit,
            )
        starts = np.repeat(lengths.cumsum() - lengths, lengths)
        return ids[np.arange(len(ids)) - starts < limit], lengths.clip(max=limit)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add `words`, from which each view takes the vectors in the form it needs."""
        extra = None
        if "subword_rows" in features:
            extra = F.embedding_bag(
                features["subword_rows"], self.subword_vectors, features["subword_offsets"], mode="mean"
            )
            if self.unknown_length is not None:
                extra = unit_length(extra) * self.unknown_length
        features["words"] = Words(features["input_ids"], features["sentence_lengths"], self.vectors, extra)
        return features

    def scale_unknown_words(self) -> None:
        """Beyond fastText: from now on, vectors of unknown words are as long as those of known words are on average.

        N-grams differ more than words do, so that the mean over the few of a short word (a number, say) is longer than
        that over the many of a long one, and short words would count more than others.
        """
        self.unknown_length = float(self.vectors[1:].norm(dim=1, dtype=torch.float32).mean())

    def save_in_bytes(self) -> None:
        """From now on, save the tables as bytes; they are rounded here as well, so that saving changes nothing."""
        self.saved_as = "int8"
        for name in self._tables:
            table = getattr(self, name)
            table.copy_(from_bytes(*to_bytes(table)))

    @property
    def _tables(self) -> list[str]:
        return ["vectors"] if self.oov == "zero" else ["vectors", "subword_vectors"]

    def word_weights(self, counts: dict[str, int] | np.ndarray, a: float = 1e-3) -> np.ndarray:
        """SIF weights a / (a + p) of the words of the table, from how often each occurs in a corpus.

        Args:
            counts: Occurrences by word, or one number per row of the table.
            a: The smaller, the less frequent words count.

        Returns:
            One weight per row of the table; 1 for words that do not occur.
        """
        if isinstance(counts, dict):
            by_row = np.zeros(self.vocab_size)
            for word, row in self.tokenizer.get_vocab().items():
                by_row[row] = counts.get(word, 0)
            counts = by_row
        if len(counts) != self.vocab_size:
            raise UserError(
                f"{len(counts)} word counts do not fit the table of {self.vocab_size} rows, one for unknown words"
            )
        weights = a / (a + counts / max(counts.sum(), 1))
        weights[UNKNOWN_ID] = 1.0  # many rare words, not one frequent one
        return weights

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write configuration, weights and tokenizer, and note in the model's configuration that it needs mv-st."""
        weights = self.state_dict()
        if self.saved_as == "int8":
            for name in self._tables:
                weights[name], weights[f"{name}_steps"] = to_bytes(weights[name])
        save_config_and_weights(self, output_path, safe_serialization, weights)
        self.tokenizer.save(os.path.join(output_path, "tokenizer.json"))
        model_config = Path(output_path) / "config_sentence_transformers.json"
        if model_config.exists():
            config = json.loads(model_config.read_text(encoding="utf-8"))
            config["requirements"] = config.get("requirements", {}) | REQUIREMENT
            model_config.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, backend: str | None = None, **kwargs: Any
    ) -> FastTextEmbedding:
        """Load the module from a folder or the Hub.

        Args:
            model_name_or_path: Folder or Hub id.
            backend: Only `"torch"`; anything else is refused, because it would silently run torch.
            **kwargs: The host library's loading arguments.
        """
        if backend not in (None, "torch"):
            raise UserError(f'backend="{backend}" is not available for mv_st models; leave it out to use torch')
        hub = hub_arguments(kwargs)
        config = cls.load_config(model_name_or_path, **hub)
        weights = cls.load_torch_weights(model_name_or_path, **hub)
        tokenizer_path = cls.load_file_path(model_name_or_path, filename="tokenizer.json", **hub)
        if tokenizer_path is None:
            raise UserError(f"{model_name_or_path} has no tokenizer.json; save the model again")
        saved_as = config.get("saved_as")
        if saved_as == "int8":
            for name in [name for name in weights if f"{name}_steps" in weights]:
                weights[name] = from_bytes(weights[name], weights[f"{name}_steps"])
        subwords = None
        if config["oov"] == "subword":
            min_n, max_n, n_buckets = config["subword_ngrams"]
            subwords = SubwordTable(
                weights["subword_vectors"].numpy(), min_n, max_n, weights["subword_buckets"].numpy(), n_buckets
            )
        module = cls.__new__(cls)
        module._set_up(Tokenizer.from_file(tokenizer_path), weights["vectors"], subwords, config["max_seq_length"])
        module.saved_as = saved_as
        module.unknown_length = config.get("unknown_length")
        return module

    def on_model_ready(self, model: BaseModel) -> None:
        """Have the model card of any model that begins with this module say that it needs mv-st."""
        from ..model_card import use_our_model_card

        use_our_model_card(model)

    def __getstate__(self) -> dict[str, Any]:
        # The memo is rebuilt where it is needed: a copy or a worker process starts with an empty one.
        memo = ("_lookup", "_memo_lock", "_new_unknown_words", "_subwords", "_unknown_words")
        return {key: value for key, value in self.__dict__.items() if key not in memo}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._memo_lock = Lock()
        self._start_memo()


install_batched_inference(SentenceTransformer, FastTextEmbedding)


def check_texts(inputs: Sequence[str]) -> None:
    """Raise a UserError unless the inputs are a sequence of strings.

    The host library takes a TypeError from `preprocess` for a sign that it should call it in another way.
    """
    if isinstance(inputs, str):
        raise UserError(f"expected a list of texts, got one text: {inputs[:60]!r}")
    if set(map(type, inputs)) == {str}:
        return
    for text in inputs:
        if not isinstance(text, str):
            raise UserError(f"mv_st encodes text; got {type(text).__name__}: {str(text)[:60]!r}")


def _number_unknown_words(ids: np.ndarray, unknown_words: list[np.ndarray]) -> dict[str, Tensor]:
    """Renumber the unknown words of this batch -1, -2, ..., in place, and list their subwords."""
    places = np.flatnonzero(ids < 0)
    if not len(places):
        return {}
    numbers, renumbered = np.unique(ids[places], return_inverse=True)
    ids[places] = -1 - renumbered
    rows = [unknown_words[-1 - number] for number in numbers]
    starts = np.cumsum([0] + [len(word) for word in rows[:-1]])
    return {
        "subword_rows": torch.from_numpy(np.concatenate(rows)),
        "subword_offsets": torch.from_numpy(starts),
    }


def _as_word_vectors(
    vectors: WordVectors | str | Path | tuple[Sequence[str], np.ndarray],
    max_vocab: int | None,
    dtype: Literal["float32", "float16"] | None,
    want_subwords: bool,
) -> WordVectors:
    if isinstance(vectors, (str, Path)):
        return load_vectors(vectors, max_vocab=max_vocab, dtype=dtype or "float32", subwords=want_subwords)
    if isinstance(vectors, tuple):
        words, matrix = vectors
        matrix = np.asarray(matrix)
        vectors = WordVectors(list(words), matrix if matrix.dtype == np.float16 else matrix.astype(np.float32))
    if max_vocab is not None and len(vectors) > max_vocab:
        vectors = WordVectors(vectors.words[:max_vocab], vectors.matrix[:max_vocab], vectors.subwords)
    return vectors
