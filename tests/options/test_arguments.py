"""Command lines: a wrong argument is one line that names the option and what would work."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import add_count, add_number, parser_of


@pytest.fixture
def parser():
    parser = parser_of("translate", "Translate.")
    add_number(parser, "--beam", "beam size", 5)
    add_number(parser, "--share", "of the text", least=0, kind=float, most=1)
    add_count(parser, "--processes", "processes", 1)
    parser.add_argument("--form", choices=["text", "json"])
    parser.add_argument("model")
    return parser


@pytest.mark.parametrize(
    "words, message",
    [
        ("--beam 0 m", "--beam 0: must be at least 1"),
        ("--beam 1.5 m", "--beam 1.5: must be a whole number"),
        ("--share nan m", "--share nan: must be from 0 to 1"),
        ("--share inf m", "--share inf: must be from 0 to 1"),
        ("--share half m", "--share half: must be a number"),
        ("--processes 0 m", "--processes 0: must be from 1 to 1024"),
        ("--processes 99999999999 m", "--processes 99999999999: must be from 1 to 1024"),
        ("--beam", "--beam expected one argument"),
        ("", "the following arguments are required: model"),
        ("m --width 3", "unrecognized arguments: --width 3"),
        ("m --baem 3", "--baem is unknown: did you mean --beam?"),
        ("--sharre=1 --width", "--sharre is unknown: did you mean --share?"),
        ("--bea 3", "the following arguments are required: model"),
        ("m --beam=0", "--beam 0: must be at least 1"),
    ],
)
def test_a_wrong_argument_is_one_line(parser, words, message, capsys):
    with pytest.raises(ConfigurationError) as error:
        parser.parse_args(words.split())
    assert str(error.value) == message
    assert capsys.readouterr() == ("", "")


def test_the_choices_are_named(parser):
    with pytest.raises(ConfigurationError, match="^--form invalid choice: 'xml' .*text.*json"):
        parser.parse_args(["m", "--form", "xml"])


def test_numbers_in_range_and_their_defaults(parser, capsys):
    given = parser.parse_args(["--share", "1", "m"])
    assert (given.beam, given.share) == (5, 1.0)
    with pytest.raises(SystemExit):
        parser.parse_args(["-h"])
    shown = capsys.readouterr().out
    assert "beam size (default: 5)\n" in shown and "of the text\n" in shown
