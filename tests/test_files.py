"""Text files: what a line is, and what is refused."""

import pytest

from fairseq_plugins import files
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import count_lines, read_input


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "text").write_bytes("\ufeffeins\n\ufeffzwei\n".encode())
    assert list(read_input(tmp_path / "text")) == ["eins", "\ufeffzwei"]
    with open(tmp_path / "text", "rb") as file:
        assert next(files.decode_lines(file, "standard input")) == "eins"
    with pytest.raises(ConfigurationError, match="line 1: byte 0xff at column 6 is not UTF-8"):
        files.decode(b"\xef\xbb\xbfab\xff", "text", 1)
    with pytest.raises(ConfigurationError, match="iconv -f utf-16 -t utf-8"):
        files.decode("eins".encode("utf-16"), "text", 1)


def test_lines_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 10)
    monkeypatch.setattr(files, "BLOCK", 7)
    lengths = [0, 9, 10, 11, 12, 17, 18, 24, 25, 10, 40, 3]
    for end in ("\n", ""):
        text = "\n".join("x" * length for length in lengths) + end
        (tmp_path / "text").write_text(text)
        found = [None if line is None else len(line) for line in read_input(tmp_path / "text")]
        assert found == [length if length <= 10 else None for length in lengths]
        assert count_lines(tmp_path / "text") == len(lengths)
