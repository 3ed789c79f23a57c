"""Commands are dataclasses: what a command line becomes, and wrong arguments in one line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import Command, read, words_of
from fairseq_plugins.options.fields import MOST, argument, option, with_default


@dataclass
class Base(Command):
    beam: int = option(5, "the beam size", least=1)
    share: float | None = option(None, "100 % of the text is 1", least=0, most=1)


@dataclass
class Sample(Base):
    model: Path = argument("the model", "MODEL")
    more: Sequence[int] = option((), "more numbers", least=0)
    processes: int = option(1, "the number of processes", least=1, most=MOST)
    form: str = option("text", "how to write", choices=["text", "json"], name="output_form")
    folder: Sequence[Path] = option((), "a folder", metavar="DIR", repeatable=True)
    joined: bool | None = option(None, "join them")
    loud: bool = option(False, "be loud")
    first: int | None = option(None, "the first K", least=1, group="which")
    last: int | None = option(None, "the last K", least=1, group="which")
    words: Sequence[str] = option((), "more options for others", rest=True)


@dataclass
class Brief(Base):
    beam: int = with_default(Base, "beam", 2)


def sample(words):
    return read(Sample, words.split(), "sample", "Try it.")


@pytest.mark.parametrize(
    "words, message",
    [
        ("--beam 0 m", "--beam 0: must be at least 1"),
        ("--beam 1.5 m", "--beam '1.5': must be a whole number"),
        ("--share nan m", "--share nan: must be from 0 to 1"),
        ("--share inf m", "--share inf: must be from 0 to 1"),
        ("--share half m", "--share 'half': must be a number"),
        ("m --more 1 -1", "--more -1: must be at least 0"),
        ("--processes 0 m", "--processes 0: must be from 1 to 1024"),
        ("--processes 99999999999 m", "--processes 99999999999: must be from 1 to 1024"),
        ("--beam", "--beam expected one argument"),
        ("", "give MODEL: -h explains this"),
        ("m --first 1 --last 2", "--last not allowed with argument --first"),
        ("m --output-form x", "--output-form x is unknown: choose one of text, json"),
        ("m --folder ftp://m", "ftp://m is a URL: download it, and give the path of the file"),
        ("m n", "too many arguments: n: give MODEL"),
        ("--width 3 m", "--width is unknown: options for others come at the end, after --"),
        ("--eban 3", "--eban is unknown: options for others come at the end, after --"),
        (
            "m --baem=3",
            "--baem is unknown: options for others come at the end, after --; did you mean --beam?",
        ),
        ("m --beam=0", "--beam 0: must be at least 1"),
    ],
)
def test_a_wrong_argument_is_one_line(words, message, capsys):
    with pytest.raises(ConfigurationError) as error:
        sample(words)
    assert str(error.value) == message
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("given", [{"beam": "3"}, {"beam": True}, {"beam": 0}, {"loud": 1}])
def test_python_has_the_same_checks(given):
    with pytest.raises(ConfigurationError, match=f"^--{next(iter(given))} .*: must be "):
        Sample(Path("m"), **given)


def test_a_command_line_comes_back():
    words = "m --more 1 2 --output-form json --folder a --folder b --no-joined --loud -- --lr 1"
    made = sample(words)
    assert made == Sample(
        Path("m"), more=[1, 2], form="json", folder=[Path("a"), Path("b")], joined=False, loud=True,
        words=["--lr", "1"],
    )  # fmt: skip
    assert made.given == {"model", "more", "form", "folder", "joined", "loud"}
    assert words_of(made) == words.split()
    assert sample("--beam 5 m").given == {"model", "beam"} and words_of(sample("m")) == ["m"]


def test_help_has_defaults(capsys):
    for options in (Sample, Brief):
        with pytest.raises(SystemExit):
            read(options, ["-h"], "sample", "Try it.")
    shown = capsys.readouterr().out
    assert "sample MODEL [options] [-- more options for others]\n\nTry it.\n" in shown
    for line in ("the beam size (default: 5)\n", "size (default: 2)\n", "100 % of the text is 1\n"):
        assert line in shown
