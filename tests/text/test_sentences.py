"""Sentences survive being written in one line, and are found in running text."""

import pytest

from fairseq_plugins.text.sentences import (
    is_blank,
    join_sentences,
    separate_sentences,
    split_sentences,
)


def test_joined_sentences_come_apart_again():
    sentences = ["Rain fell .", "It stopped \u2013 at 5 p.m.", "End"]
    line = join_sentences(sentences)
    assert "\n" not in line and line.count("<q>") == 2
    assert separate_sentences(line) == sentences


def test_white_space_of_any_kind_is_one_space_and_empty_sentences_vanish():
    line = join_sentences(["a\u2028b\x85c\td\r\ne", "", " \xa0 ", "f"])
    assert line == "a b c d e <q> f"
    assert separate_sentences("<q> a <q><q> b \n\n") == ["a", "b"]


def test_what_nobody_sees_is_blank():
    assert is_blank("") and is_blank(" \u2028\xa0") and is_blank("\u200b\ufeff \xad\x07")
    assert not any(map(is_blank, ["a", " . ", "\u200b\u3002", "\u0301", "\U0001f642"]))


def test_boundary_touching_words_as_pieces_joined_have_it():
    assert separate_sentences("Rain fell.<q> It stopped.") == ["Rain fell.", "It stopped."]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("It fell. It rose.", ["It fell.", "It rose."]),
        ("It fell! Why? Nobody knows", ["It fell!", "Why?", "Nobody knows"]),
        ('He said "no." She left.', ['He said "no."', "She left."]),
        ("He said \u2019no.\u2019 She left.", ["He said \u2019no.\u2019", "She left."]),
        ("(CNN)U.S. President Obama spoke. He", ["(CNN)U.S. President Obama spoke.", "He"]),
        ("It is No. 1. She said no. He left.", ["It is No. 1.", "She said no.", "He left."]),
        ("Mr. Smith met Dr. J. Jones Jr. Monday.", ["Mr. Smith met Dr. J. Jones Jr. Monday."]),
        (
            "Leave the transept. Plan B! Who is Mr? Me",
            ["Leave the transept.", "Plan B!", "Who is Mr?", "Me"],
        ),
        ("It rose 3.5 percent. 2014 was worse.", ["It rose 3.5 percent.", "2014 was worse."]),
        ("It rained. \u00c9 tarde. \u00fcber uns", ["It rained.", "\u00c9 tarde. \u00fcber uns"]),
        (
            "\u041c\u0438\u0440. \u042d\u0442\u043e.",
            ["\u041c\u0438\u0440.", "\u042d\u0442\u043e."],
        ),  # Russian
        (
            "\u0930\u093e\u092e\u0964 \u0906\u092f\u093e\u0964",
            ["\u0930\u093e\u092e\u0964", "\u0906\u092f\u093e\u0964"],
        ),  # Hindi
        ("we need to close ... gaps", ["we need to close ... gaps"]),
        ("", []),
        ("   ", []),
    ],
)
def test_sentences_of_running_text(text, expected):
    found = split_sentences(text)
    assert found == expected
    assert " ".join(found) == " ".join(text.split())  # nothing is lost


@pytest.mark.parametrize("text", ["." * 300_000, "\u061f" * 300_000, "A. " * 100_000])
def test_long_runs_of_marks_take_linear_time(text):
    """With quadratic time each of these would take many minutes."""
    assert split_sentences(text) == [text.strip()]


def test_sentences_without_spaces_between_them():
    rain, sun, said = (
        "\u4eca\u5929\u4e0b\u96e8\u3002",
        "\u660e\u5929\u6674\uff01",
        "\u300c\u662f\u3002\u300d",
    )
    assert split_sentences(rain + sun + said + "\u4e86") == [rain, sun, said, "\u4e86"]
