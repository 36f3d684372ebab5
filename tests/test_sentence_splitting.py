from __future__ import annotations

import random
import time

import pytest

from mv_st.sentence_splitting import split_sentences


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (None, "One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("en", "Mr. and Mrs. Jones paid $3.50 to Dr. Lee.", ["Mr. and Mrs. Jones paid $3.50 to Dr. Lee."]),
        ("de", "Das ist z. B. gut. Am 3. Mai regnete es.", ["Das ist z. B. gut.", "Am 3. Mai regnete es."]),
        ("ru", "Он родился в 1990 г. в Туле. Да!", ["Он родился в 1990 г. в Туле.", "Да!"]),
        ("fr", "Il est parti. Où ça ? À Paris !", ["Il est parti.", "Où ça ?", "À Paris !"]),
        (None, "我是学生。你好吗？他走了！", ["我是学生。", "你好吗？", "他走了！"]),
        ("ja", "これは文です。次の文です。", ["これは文です。", "次の文です。"]),
        (None, "यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
        (None, "هذا نص. هل تفهم؟ نعم.", ["هذا نص.", "هل تفهم؟", "نعم."]),
    ],
)
def test_languages(language: str | None, text: str, expected: list[str]) -> None:
    assert split_sentences(text, language) == expected


def test_blank_lines_end_sentences_and_single_line_breaks_do_not() -> None:
    wrapped = "A title\n\nA sentence that is\nwrapped. Another\r\none.\r\n \t\r\nNo full stop\n\n\n\nThe end"
    assert split_sentences(wrapped) == [
        "A title",
        "A sentence that is wrapped.",
        "Another one.",
        "No full stop",
        "The end",
    ]


@pytest.mark.parametrize("text", ["", "   ", "\n\n\n", "\u3000\x85"])
def test_nothing_to_split(text: str) -> None:
    assert split_sentences(text) == []


def test_white_space_is_collapsed() -> None:
    assert split_sentences(" One\u00a0\t two.   Three\u3000four. ") == ["One two.", "Three four."]


def test_unknown_language_and_lone_surrogates_do_not_fail() -> None:
    assert split_sentences("One. Two.", "zz") == ["One.", "Two."]
    assert split_sentences("One \ud83d here. Two.") == ["One ? here.", "Two."]


def test_long_paragraphs_are_split_as_short_ones_are() -> None:
    sentences = [f"This is the sentence with the number {i} in a row." for i in range(2000)]
    assert split_sentences(" ".join(sentences)) == sentences


def test_one_unclosed_quotation_mark_does_not_swallow_the_document() -> None:
    sentences = ['He said "no and left.'] + [f'"Sentence" number {i} follows.' for i in range(2000)]
    assert max(map(len, split_sentences(" ".join(sentences)))) <= 2000


def test_text_without_any_sentence_end_loses_no_word() -> None:
    words = [f"word{i}" for i in range(5000)]
    pieces = split_sentences(" ".join(words))
    assert " ".join(pieces).split() == words
    assert max(map(len, pieces)) <= 2000
    assert "".join(split_sentences("字" * 5000)) == "字" * 5000


def test_running_time_is_linear() -> None:
    text = 'She said: "Well. No." Then (at 3 p.m.) she left. ' * 4000

    def seconds(repetitions: int) -> float:
        start = time.process_time()
        split_sentences(text * repetitions)
        return time.process_time() - start

    seconds(1)
    assert seconds(8) < 8 * 4 * max(seconds(1), 0.005)


def test_no_character_is_lost_whatever_the_text() -> None:
    generator = random.Random(0)
    characters = "ab .!?\"'()[]«»“”„‘’。！？「」।؟\n\r\t1٣é👩🇩\u200b\u0301\u3000\ufeff\x00\x85\u2028-—…"
    alphabet = [*characters, "Dr.", "\n\n", "г."]
    for _ in range(2000):
        text = "".join(generator.choices(alphabet, k=generator.randint(0, 200)))
        language = generator.choice(["en", "de", "ru", "kk", "ja", "hi", "ar", "el"])
        sentences = split_sentences(text, language)
        assert "".join("".join(sentences).split()) == "".join(text.split())
        assert all(sentence == " ".join(sentence.split()) and sentence for sentence in sentences)
