#!/usr/bin/env python3
"""Check raw parallel text before anything slow is done with it.

    python scripts/check_parallel.py DIR/train DIR/valid DIR/test --langs de en

Each prefix stands for two files, DIR/train.de and DIR/train.en: UTF-8, one sentence a line, lines
ended by a line feed and by nothing else. The first mistake is told in one line, with the file and
the line, and the exit status is 2.
"""

import argparse
import sys
from pathlib import Path
from typing import List, Optional, Sequence

# Python and some tools end a line at some of these, wc and fairseq do not: the sides would drift
# apart. The others are no text at all; a tab is harmless.
CONTROLS = "".join(chr(code) for code in range(32) if chr(code) not in "\t\n") + "\x7f"
FORBIDDEN = CONTROLS + "\x85\u2028\u2029\ufeff"


class BadText(ValueError):
    """A file that cannot be used, told in one line."""


def read_lines(path: Path) -> List[str]:
    """The lines of a text file without their line feeds.

    Raises:
        BadText: no such file, nothing in it, a byte that is not UTF-8, a control character or
            another that some tools take for the end of a line, or a line without a word.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadText(f"{path} cannot be read: {error.strerror}") from None
    if not raw:
        raise BadText(f"{path} is empty")
    lines = []
    for number, line in enumerate(raw[: -1 if raw.endswith(b"\n") else None].split(b"\n"), 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte, column = line[error.start], error.start + 1
            raise BadText(
                f"{path}, line {number}: byte 0x{byte:02x} at column {column} is not UTF-8: "
                "convert the file, for example with iconv -f latin1 -t utf-8"
            ) from None
        for character in FORBIDDEN:
            if character in text:
                advice = "lines end by a line feed alone, and text has no control characters"
                if character == "\r":
                    advice = "lines end by a line feed alone: convert the file with dos2unix"
                raise BadText(
                    f"{path}, line {number}: has the character U+{ord(character):04X}: {advice}"
                )
        if not text.strip():
            raise BadText(f"{path}, line {number}: is empty: remove it on both sides")
        lines.append(text)
    return lines


def check_pair(prefix: str, langs: Sequence[str]) -> int:
    """How many sentence pairs PREFIX.source and PREFIX.target hold.

    Raises:
        BadText: either file is bad, or they differ in length.
    """
    source, target = (Path(f"{prefix}.{lang}") for lang in langs)
    counts = [len(read_lines(path)) for path in (source, target)]
    if counts[0] != counts[1]:
        raise BadText(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}: they must be aligned by "
            "line"
        )
    return counts[0]


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefixes", nargs="+", metavar="PREFIX")
    parser.add_argument("--langs", nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    args = parser.parse_args(argv)
    try:
        for prefix in args.prefixes:
            print(f"{prefix}.{{{','.join(args.langs)}}}: {check_pair(prefix, args.langs)} pairs")
    except BadText as error:
        print(f"check_parallel: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
