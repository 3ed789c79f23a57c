"""Bad parallel text is told in one line, with the file and the line; good text passes whole."""

import subprocess
import sys

import pytest

from scripts import check_parallel

GOOD = {"train.de": b"Guten Tag.\nWie geht es?\n", "train.en": b"Good day.\nHow are you?\n"}


@pytest.fixture
def check(tmp_path, capsys):
    """check({name: bytes}, prefixes...) -> (exit status, standard output, standard error)"""

    def run(files, *prefixes):
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        words = [str(tmp_path / prefix) for prefix in prefixes or ("train",)]
        status = check_parallel.main([*words, "--langs", "de", "en"])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_good_text(check):
    test = {name.replace("train", "test"): text for name, text in GOOD.items()}
    status, output, errors = check({**GOOD, **test}, "train", "test")
    assert status == 0 and not errors
    assert output.count("2 pairs") == 2


@pytest.mark.parametrize(
    "text", ["ein\tTab", "\u00a0 Leerzeichen", "日本語", "a\u200bb", "Größe “x” …", "🙂"]
)
def test_unusual_characters_are_text(check, text):
    assert check({"train.de": text.encode("utf-8"), "train.en": b"no line feed at the end"})[0] == 0


def test_a_line_is_what_ends_in_a_line_feed(check):
    """Not what str.splitlines makes of it: the two sides would be counted differently."""
    status, output, _ = check({"train.de": b"a b\nc\n", "train.en": b"A B\nC\n"})
    assert status == 0 and "2 pairs" in output
    status, _, errors = check({"train.de": "a\u2028b\n".encode(), "train.en": b"A\nB\n"})
    assert status == 2 and "train.de, line 1" in errors and "U+2028" in errors


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("train.de", None, ["train.de", "No such file"]),
        ("train.en", None, ["train.en", "No such file"]),
        ("train.en", b"", ["train.en", "is empty"]),
        ("train.en", b"Good day.\n", ["train.de has 2 lines", "train.en has 1"]),
        ("train.de", b"eins\nzwei\ndrei\n", ["train.de has 3 lines", "train.en has 2"]),
        (
            "train.de",
            b"Guten Tag.\nGr\xfc\xdfe!\n",
            ["train.de, line 2", "0xfc", "column 3", "UTF-8"],
        ),
        ("train.en", b"Good day.\n\n", ["train.en, line 2", "empty"]),
        ("train.en", b"   \t\nHow are you?\n", ["train.en, line 1", "empty"]),
        ("train.de", "\u00a0\nzwei\n".encode(), ["train.de, line 1", "empty"]),
        ("train.de", b"Guten\x00Tag.\nzwei\n", ["train.de, line 1", "U+0000"]),
        ("train.de", b"eins\nzw\x1bei\n", ["train.de, line 2", "U+001B"]),
        ("train.de", b"eins\r\nzwei\r\n", ["train.de, line 1", "U+000D", "dos2unix"]),
        ("train.de", b"\xef\xbb\xbfeins\nzwei\n", ["train.de, line 1", "U+FEFF"]),
        ("train.de", "eins\u0085\nzwei\n".encode(), ["train.de, line 1", "U+0085"]),
        ("train.de", "eins\nzwei\u2029\n".encode(), ["train.de, line 2", "U+2029"]),
        ("train.de", "eins\x0c\nzwei\n".encode(), ["train.de, line 1", "U+000C"]),
    ],
)
def test_bad_text(check, tmp_path, name, content, expected):
    files = dict(GOOD)
    if content is None:
        del files[name]
    else:
        files[name] = content
    status, _, errors = check(files)
    assert status == 2
    assert errors.count("\n") == 1
    for part in expected:
        assert part in errors


def test_every_prefix_is_checked(check):
    status, _, errors = check(dict(GOOD, **{"test.de": b"eins\n", "test.en": b""}), "train", "test")
    assert status == 2 and "test.en" in errors


def test_as_a_command(tmp_path):
    for name, content in GOOD.items():
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, check_parallel.__file__, str(tmp_path / "train")]
    for langs, status in ((["de", "en"], 0), (["de", "fr"], 2)):
        result = subprocess.run([*command, "--langs", *langs], stderr=subprocess.PIPE)
        assert result.returncode == status
        assert len(result.stderr.splitlines()) == (1 if status else 0)
