"""What counts as a word, and that the memo gives the ids that the tokenizer itself gives."""

from __future__ import annotations

import random
import sys
import unicodedata

import pytest
from tokenizers import normalizers, pre_tokenizers

from mv_st.modules.word_tokenizer import UNKNOWN_ID, WordLookup, WordSplitter, build_tokenizer

ENGLISH = ["the", "cat", "do", "ca", "it", "is", "don", "t", "s", "'"]
CASED = [*ENGLISH, "US", "us", "Paris", "may", "May", "Straße", "ß"]

SPACES = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
CONTROLS = [chr(code) for code in (*range(32), *range(127, 160), 0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF)]


def lookup(words: list[str]) -> WordLookup:
    return WordLookup(build_tokenizer(words), lambda word: UNKNOWN_ID)


def random_texts(count: int) -> list[str]:
    """Strings in which anything may stand next to anything."""
    chance = random.Random(7)
    parts = [
        *CASED,
        *[
            "n't",
            "'s",
            "’s",
            "N'T",
            "it's",
            "CAN'T",
            "猫",
            "です",
            "สวัสดี",
            "नमस्ते",
            "привет",
            "İ",
            "ΣΑΣ",
            "ǆ",
            "é",
            "e\u0301",
        ],
        *["👩\u200d👩\u200d👧", "❤️", "🇩🇪", "1️⃣", "...", "3.14", "€", "_", "\ufffd", "\u0301", "[UNK]"],
    ]

    def part() -> str:
        kind = chance.random()
        if kind < 0.4:
            return chance.choice(parts)
        if kind < 0.6:
            return chance.choice(SPACES)
        if kind < 0.7:
            return chance.choice(CONTROLS)
        code = chance.randrange(sys.maxunicode + 1) if kind < 0.8 else chance.randrange(0x3000)
        return chr(code) if not 0xD800 <= code < 0xE000 else " "

    return ["".join(part() for _ in range(chance.randrange(25))) for _ in range(count)]


class TestWords:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("The cat, sat.", ["the", "cat", ",", "sat", "."]),
            ("Grüße aus der Straße!", ["grüße", "aus", "der", "straße", "!"]),
            ("Привет, мир", ["привет", ",", "мир"]),
            ("مرحبا بالعالم", ["مرحبا", "بالعالم"]),
            ("हिन्दी में नमस्ते।", ["हिन्दी", "में", "नमस्ते", "।"]),
            ("می\u200cخواهم", ["می\u200cخواهم"]),
            ("ශ්\u200dරී ලංකා", ["ශ්\u200dරී", "ලංකා"]),
            ("안녕하세요 세계", ["안녕하세요", "세계"]),
            ("我喜欢猫。", ["我", "喜", "欢", "猫", "。"]),
            ("ไทย ดี", ["ไ", "ท", "ย", "ด", "ี"]),
            ("猫がcat", ["猫", "が", "cat"]),
            ("1984 and 3.14", ["1984", "and", "3", ".", "14"]),
            ("I ❤ 🐈‍⬛", ["i", "❤", "🐈", "⬛"]),
            ("snake_case-word", ["snake", "_", "case", "-", "word"]),
            ("a\x00b\u200bc", ["a", "b", "c"]),
            ("", []),
            (" \t\n\u3000", []),
        ],
    )
    def test_of_many_languages(self, text: str, words: list[str]) -> None:
        assert WordSplitter(build_tokenizer([]))(text) == words

    @pytest.mark.parametrize("text", ["café naïve", "Å", "नमस्ते क़लम", "ཀྵ", "안녕"])
    def test_composed_and_decomposed_text_are_the_same(self, text: str) -> None:
        split = WordSplitter(build_tokenizer([]))
        assert split(unicodedata.normalize("NFC", text)) == split(unicodedata.normalize("NFD", text))

    @pytest.mark.parametrize("vocabulary", [[], ["'s"], ["n't", "'s"], ["Paris"]], ids=str)
    def test_ascii_text_is_split_as_the_tokenizer_splits_it(self, vocabulary: list[str]) -> None:
        chance = random.Random(3)
        tokenizer = build_tokenizer(vocabulary)
        split = WordSplitter(tokenizer)
        for _ in range(2000):
            text = "".join(chr(chance.choice([chance.randrange(128), 39, 83, 115])) for _ in range(12))
            normalized = tokenizer.normalizer.normalize_str(text)
            assert split(text) == [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)], repr(
                text
            )

    def test_rules_of_another_tokenizer_hold(self) -> None:
        tokenizer = build_tokenizer(["a"])
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        assert WordSplitter(tokenizer)("A-b, c") == ["a-b,", "c"]
        tokenizer = build_tokenizer(["a"])
        tokenizer.normalizer = normalizers.Replace("b", "x")
        assert WordSplitter(tokenizer)("A-b") == ["A", "-", "x"]

    def test_half_a_character_does_not_stop_the_rest(self) -> None:
        assert WordSplitter(build_tokenizer([]))("cat \ud83d dog\udc00s") == ["cat", "dog", "s"]

    @pytest.mark.parametrize(
        ("vocabulary", "text", "words"),
        [
            (["n't", "'s"], "I don't; CAN’T! The cat's isn't", "i do n't ; ca n't ! the cat 's is n't"),
            (["n't"], "they've we'll I'd you're n't 'tis", "they 've we 'll i 'd you 're n't ' tis"),
            (["'s"], "I don't know the dog's", "i don 't know the dog 's"),
            ([], "don't", "don ' t"),
            (["n't"], "ant's want'x", "ant 's want ' x"),
            (["n’t"], "don't", "do n't"),
        ],
    )
    def test_clitics_follow_the_vocabulary(self, vocabulary: list[str], text: str, words: str) -> None:
        assert WordSplitter(build_tokenizer(vocabulary))(text) == words.split()


class TestVocabulary:
    def test_ids_are_in_the_order_of_the_words(self) -> None:
        assert build_tokenizer(["b", "a"]).get_vocab() == {"[UNK]": 0, "b": 1, "a": 2}

    def test_words_in_another_unicode_form_are_found(self) -> None:
        decomposed = unicodedata.normalize("NFD", "café")
        found = lookup([decomposed, "क़लम", "cat"])
        assert found.ids(f"café {decomposed} क़लम cat") == [1, 1, 2, 3]

    def test_a_word_in_two_forms_keeps_the_row_of_the_usual_one(self) -> None:
        composed, decomposed = "é", "e\u0301"
        for words in ([composed, decomposed], [decomposed, composed]):
            tokenizer = build_tokenizer(words)
            assert tokenizer.get_vocab_size() == 3
            assert tokenizer.get_vocab()[composed] == 1 + words.index(composed)

    def test_exact_form_first_then_lower_case(self) -> None:
        found = lookup(["US", "us", "paris", "May"])
        assert found.ids("US us Us PARIS Paris May MAY") == [1, 2, 2, 3, 3, 4, 0]

    def test_lower_case_vocabulary_ignores_case(self) -> None:
        assert lookup(["us", "straße"]).ids("US Us us STRAßE") == [1, 1, 1, 2]


class TestMemo:
    @pytest.mark.parametrize("clitics", [[], ["'s"], ["n't", "'s"]], ids=str)
    def test_equals_the_tokenizer_for_lower_case_vocabularies(self, clitics: list[str]) -> None:
        words = [*ENGLISH, *clitics, "猫", "ส", "привет", "é", "❤", "i\u0307", "."]
        tokenizer = build_tokenizer(words)
        found = WordLookup(tokenizer, lambda word: UNKNOWN_ID)
        texts = random_texts(1500)
        expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
        assert [found.ids(text) for text in texts] == expected
        assert [found.ids(text) for text in texts] == expected, "remembered"
        assert sum(any(ids) for ids in expected) > 500

    def test_many_texts_at_once(self) -> None:
        found = lookup(ENGLISH)
        texts = ["the cat", "", "\0", "it \0 is\0the", " \0 cat", *random_texts(300), ""]
        ids, lengths = found.batch(texts)
        assert lengths.tolist() == [len(found.ids(text)) for text in texts]
        assert ids.tolist() == [i for text in texts for i in found.ids(text)]
        assert lengths.tolist()[:5] == [2, 0, 0, 3, 1]

    def test_falls_back_to_lower_case_otherwise(self) -> None:
        tokenizer = build_tokenizer(CASED)
        found = WordLookup(tokenizer, lambda word: UNKNOWN_ID)
        vocabulary = tokenizer.get_vocab()
        split = WordSplitter(tokenizer)
        used_fallback = 0
        for text in random_texts(1500):
            exact = tokenizer.encode(text).ids  # the tokenizer itself knows the exact form only
            lower = [vocabulary.get(word.lower(), 0) for word in split(text)]
            assert found.ids(text) == [i or j for i, j in zip(exact, lower, strict=True)], repr(text)
            used_fallback += exact != found.ids(text)
        assert used_fallback > 20

    def test_every_space_separates_words(self) -> None:
        found = lookup(["the", "cat"])
        for space in SPACES + CONTROLS:
            if space not in "\u200c\u200d":
                assert found.ids(f"the{space}cat") == [1, 2], repr(space)

    def test_unknown_words_are_passed_on_in_the_case_they_have(self) -> None:
        seen: list[str] = []

        def unknown(word: str) -> int:
            seen.append(word)
            return -len(seen)

        found = WordLookup(build_tokenizer(["cat", "US"]), unknown)
        assert found.ids("cat Dog US Dog") == [1, -1, 2, -1]
        assert seen == ["Dog"]

    def test_counts_what_it_remembers(self) -> None:
        found = lookup(["cat"])
        found.ids("cat cat 我喜欢猫 cat")
        assert found.characters == len("cat") + len("我喜欢猫")
