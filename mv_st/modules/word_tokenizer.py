"""Text to word ids: a `tokenizers.Tokenizer` that defines the words, and a memo that looks them up at speed.

What counts as a word:

* a run of letters, combining marks and digits of any script: `Straße`, `naïve`, `привет`, `1984`, also with the
  invisible joiners that Persian and Indic scripts write inside words;
* in scripts written without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) every character by itself, because
  there is no border to split at without a dictionary. Pretrained vectors of such a language then contribute their
  one-character words only; vectors trained on one's own corpus are trained on the same characters and lose nothing;
* any other visible character by itself: `,`, `€`, most emoji.

English clitics follow the vocabulary: where it has `n't` or `'s` as words of their own, `don't` becomes `do n't` or
`don 't`; otherwise the apostrophe is a word of its own.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel

UNKNOWN = "[UNK]"
UNKNOWN_ID = 0

_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_IN_WORD = rf"[[\p{{L}}\p{{M}}\p{{N}}]&&[^{_SPACELESS}]]"
_WORD = rf"{_IN_WORD}+(?:[\u200c\u200d]{_IN_WORD}+)*"
_CLITICS = r"'(?i:s|t|m|d|re|ve|ll)(?![\p{L}\p{M}\p{N}])"
_NEGATION = r"(?i:n't)(?![\p{L}\p{M}\p{N}])"
_BEFORE_NEGATION = r"\p{L}+?(?=(?i:n't)(?![\p{L}\p{M}\p{N}]))"

MEMO_CHARACTERS = 8_000_000
"""Number of characters in distinct space-separated chunks remembered before the memo starts afresh (about 150 MB)."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[!-/:-@\[-`{-~]")

_BORDER = "\0"
_BORDER_ID = np.iinfo(np.int64).min


def word_pattern(words: set[str] | dict[str, int]) -> str:
    """Return the regular expression whose matches are the words, with the clitics that the vocabulary knows.

    Args:
        words: The vocabulary.

    Example:
        >>> word_pattern({"do", "n't"}) != word_pattern({"do"})
        True
    """
    alternatives = [f"[{_SPACELESS}]", _WORD, r"[^\s\p{C}]"]
    if "n't" in words:
        alternatives = [_BEFORE_NEGATION, _NEGATION, _CLITICS, *alternatives]
    elif "'s" in words:
        alternatives = [_CLITICS, *alternatives]
    return "|".join(alternatives)


def build_tokenizer(words: Sequence[str]) -> Tokenizer:
    """Build the tokenizer of a vocabulary. Word i gets the id i + 1; 0 is the unknown word.

    The case of a word is kept when the vocabulary has upper-case words, otherwise all text is lower-cased.

    Args:
        words: Distinct words.

    Example:
        >>> build_tokenizer(["the", "cat"]).encode("The cat, the dog").tokens
        ['the', 'cat', '[UNK]', 'the', '[UNK]']
    """
    vocabulary = {UNKNOWN: UNKNOWN_ID}
    taken = set(words)
    for word in words:
        # Text is normalised before it is looked up: a word in another form would never be found.
        form = unicodedata.normalize("NFC", word).replace("’", "'")
        if form in taken:
            form = word
        taken.add(form)
        vocabulary[form] = len(vocabulary)
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = _normalizer(lower_case=all(word == word.lower() for word in words))
    tokenizer.pre_tokenizer = _pre_tokenizer(vocabulary)
    return tokenizer


def _normalizer(lower_case: bool) -> normalizers.Normalizer:
    steps = [normalizers.NFC(), normalizers.Replace("’", "'")]
    if lower_case:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps)


def _pre_tokenizer(words: set[str] | dict[str, int]) -> pre_tokenizers.PreTokenizer:
    # invert: the matches are the words, and whatever lies between them is dropped.
    return pre_tokenizers.Split(Regex(word_pattern(words)), behavior="removed", invert=True)


class WordSplitter:
    """Splits text into words as a tokenizer does, without looking them up.

    ASCII text, most of English, is split by a small pattern of its own, ten times as fast and with the same result.

    Args:
        tokenizer: A tokenizer made by `build_tokenizer`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        normalizer, pre_tokenizer = (
            step.__getstate__() if step is not None else None
            for step in (tokenizer.normalizer, tokenizer.pre_tokenizer)
        )
        self._lower_case = normalizer == _normalizer(lower_case=True).__getstate__()
        without_clitics = pre_tokenizer == _pre_tokenizer(set()).__getstate__()
        with_clitics = pre_tokenizer in [_pre_tokenizer({word}).__getstate__() for word in ("n't", "'s")]
        # A tokenizer that somebody put in the place of ours has rules of its own.
        self._is_ours = (self._lower_case or normalizer == _normalizer(lower_case=False).__getstate__()) and (
            without_clitics or with_clitics
        )
        self._has_clitics = with_clitics

    def __call__(self, text: str) -> list[str]:
        """Return the words of a text.

        Example:
            >>> WordSplitter(build_tokenizer([]))("Don't panic: 42 猫です")
            ['don', "'", 't', 'panic', ':', '42', '猫', 'で', 'す']
        """
        if self._is_ours and text.isascii() and not (self._has_clitics and "'" in text):
            return _ASCII_WORD.findall(text.lower() if self._lower_case else text)
        # Half of a character, as careless cutting leaves it, is no text; the tokenizer would refuse it.
        normalized = self.tokenizer.normalizer.normalize_str(_SURROGATES.sub(" ", text))
        return [word for word, _ in self.tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]


class WordLookup(dict[str, bytes]):
    """A memo from space-separated chunks of text to word ids, which are kept as the bytes of an int64 array.

    No word spans white space, so a text is looked up chunk by chunk. Almost every chunk has been seen before, and then
    costs one dictionary access; the ids of a batch are joined without a Python object for each of them.

    A word that the vocabulary has in no form is passed to `unknown`, which returns its id.

    Args:
        tokenizer: Defines words and vocabulary.
        unknown: Called with an unknown word; returns the id to use.

    Attributes:
        characters: Length of all remembered chunks together.
    """

    def __init__(self, tokenizer: Tokenizer, unknown: Callable[[str], int]) -> None:
        super().__init__({_BORDER: array("q", [_BORDER_ID]).tobytes()})
        self.split = WordSplitter(tokenizer)
        self.vocabulary = tokenizer.get_vocab()
        self.unknown = unknown
        self.unknown_ids: dict[str, int] = {}
        self.characters = 0

    def __missing__(self, chunk: str) -> bytes:
        ids = array("q", [self._word_id(word) for word in self.split(chunk)]).tobytes()
        self[chunk] = ids
        self.characters += len(chunk)
        return ids

    def _word_id(self, word: str) -> int:
        # Exact form first, then lower case.
        word_id = self.vocabulary.get(word)
        if word_id is None:
            word_id = self.vocabulary.get(word.lower())
        if word_id is None:
            word_id = self.unknown_ids.get(word)
        if word_id is None:
            # Remembered by word as well: a comma that the vocabulary lacks is in thousands of chunks.
            word_id = self.unknown_ids[word] = self.unknown(word)
        return word_id

    def batch(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Look up the words of texts.

        Args:
            texts: At least one.

        Returns:
            The ids of all words one after another, and the number of words of each text.
        """
        # A character that is in no word, and in hardly any text, ends each of them.
        texts = [text.replace(_BORDER, " ") if _BORDER in text else text for text in texts]
        chunks = f" {_BORDER} ".join([*texts, ""]).split()
        ids = np.frombuffer(b"".join(map(self.__getitem__, chunks)), dtype=np.int64)
        is_border = ids == _BORDER_ID
        lengths = np.diff(np.flatnonzero(is_border), prepend=-1) - 1
        return ids[~is_border], lengths

    def ids(self, text: str) -> list[int]:
        """Return the word ids of a text."""
        return self.batch([text])[0].tolist()
