"""Output that a stopped or killed run wrote is continued, and equals that of an unbroken run."""

import json
import os
import random
import signal
import subprocess
import sys

import pytest

from fairseq_plugins import cli
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.system.resumable import Group, Result, resumable, write_groups
from tests.conftest import ROOT

OPTIONS = {"--beam": 5, "--model": ["digest"]}
LINES = [f"line {number}" for number in range(11)]


def write(path, lines=LINES, options=OPTIONS, size=3, stop=None, processes=1, update=bool):
    """Write each line with its group, so that other groups give other output."""

    def answer(group: Group):
        together = range(group.first + 1, group.first + len(group.lines) + 1)
        if stop in together:
            raise KeyboardInterrupt
        lines = [f"{line} of {together}" for line in group.lines]
        return Result(lines, {"odd": [number for number in together if number % 2], "none": []})

    with resumable(path, options, size) as output:
        write_groups(lambda: answer, lines, output, processes=processes, update=update)
    return output


@pytest.fixture
def stopped(tmp_path):
    """A file of which 6 of 11 lines were written, and what an unbroken run writes."""
    write(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "out", stop=8)
    assert (tmp_path / "out.part").read_text().count("\n") == 6
    whole = (tmp_path / "whole").read_text()
    (tmp_path / "whole").unlink()
    return tmp_path / "out", whole


@pytest.mark.parametrize("processes", [1, 2])
def test_a_stopped_run_is_continued(stopped, processes):
    """With the size of its groups, and with its notes."""
    path, whole = stopped
    counted = []
    output = write(path, size=100, processes=processes, update=counted.append)
    assert counted == [3, 2]  # of this run, so that the time left is right
    assert path.read_text() == whole and os.listdir(path.parent) == ["out"]
    assert output.notes == {"odd": [1, 3, 5, 7, 9, 11], "none": []}


def test_a_kill_at_any_byte_loses_nothing(stopped):
    """A group is written first, then its record in the journal; each may be torn anywhere."""
    path, whole = stopped
    part, journal = path.with_name("out.part"), path.with_name("out.part.jsonl")
    written, records = whole.encode()[:-1], journal.read_bytes()
    (_, one, two) = (json.loads(line).get("bytes", 0) for line in records.splitlines())
    states = [(records, length) for length in range(two, len(written) + 1, 7)]
    start = records.index(b"\n") + 1  # of the record of the first group
    states += [(records[:length], two) for length in range(start, len(records))]
    states += [(records, one + 5), (records, 2)]  # the disk lost the end of the file in a crash
    for log, length in states:
        journal.write_bytes(log)
        part.write_bytes(written[:length])
        assert write(path).lines == len(LINES)
        assert path.read_text() == whole and os.listdir(path.parent) == ["out"]


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"options": {**OPTIONS, "--beam": 4}}, "with --beam 5, but now --beam 4: give the same"),
        ({"options": {**OPTIONS, "--model": ["x"]}}, r"\['digest'\], but now --model \['x'\]"),
        ({"options": {**OPTIONS, "--int8": True}}, "with --int8 None, but now --int8 True"),
        ({"lines": ["other", *LINES[1:]]}, "6 lines came of another input"),
        ({"lines": LINES[:4]}, "6 lines came of another input"),
        ({"lines": []}, "6 lines came of another input"),
    ],
)
def test_what_changed_is_named(stopped, changed, message):
    path, whole = stopped
    with pytest.raises(ConfigurationError, match=f"out.part is unfinished.*{message}.*remove"):
        write(path, **changed)
    write(path, [*LINES, "more"])  # what was not read yet may change
    assert path.read_text().splitlines()[:9] == whole.splitlines()[:9]


def test_files_of_others_are_kept(tmp_path, monkeypatch):
    """A file with this name that has no journal, and one that another run writes."""
    monkeypatch.setattr("fairseq_plugins.files.PATIENCE", 0)
    (tmp_path / "out.part").write_text("mine")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="out.part exists, but no journal of it"):
            write(tmp_path / "out")
    assert (tmp_path / "out.part").read_text() == "mine" and len(os.listdir(tmp_path)) == 1
    with resumable(tmp_path / "b", {}, 1):
        with pytest.raises(ConfigurationError, match="another run that writes b is running"):
            write(tmp_path / "b")


def test_nothing_is_left_of_a_run_that_wrote_nothing(tmp_path):
    (tmp_path / "out").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "out", stop=1)
    assert os.listdir(tmp_path) == ["out"] and (tmp_path / "out").read_text() == "old"


# The command line `fairseq_plugins`, which sends itself a signal once so many lines are written:
# before a group is written to PATH.part, between that and its record in the journal, or after both.
KILL = """
import os, runpy, sys
sys.argv[0] = "fairseq-plugins"  # which leaves torch and fairseq out
from fairseq_plugins.system.resumable import _Unfinished

lines, number, moment = map(int, sys.argv.pop(1).split(","))


def around(name, before, after):
    original = getattr(_Unfinished, name)

    def call(self, *args):
        if moment == before and self.lines >= lines:
            os.kill(os.getpid(), number)
        original(self, *args)
        if moment == after and self.lines >= lines:
            os.kill(os.getpid(), number)

    setattr(_Unfinished, name, call)


around("add", 0, None)
around("_record", 1, 2)
runpy.run_module("fairseq_plugins", run_name="__main__")
"""


def check_kills(folder, kills, *options):
    """Kill a translation several times; the output equals that of an unbroken one."""
    german = (ROOT / "examples/quickstart/test.de").read_text().splitlines(keepends=True) * 2
    (folder / "in").write_text("".join(german[: 20 * (kills + 1)]))
    words = ["translate", "--model", "tatoeba-de-en", "--input", str(folder / "in")]
    words += ["--buffer", "6", *options, "--output"]

    draw = random.Random(kills)
    for kill in range(kills):
        number = draw.choice([signal.SIGTERM, signal.SIGKILL])
        lines = 20 * kill + draw.randrange(1, 14)
        python = [sys.executable, "-c", KILL, f"{lines},{number},{draw.randrange(3)}"]
        ended = subprocess.run(
            [*python, *words, folder / "out"], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        stopped = number == signal.SIGTERM
        assert ended.returncode == (128 + number if stopped else -number), ended.stderr
        assert stopped == ("out.part: rerun to resume\nstopped" in ended.stderr)
    with pytest.raises(ConfigurationError, match="with --beam 5, but now --beam 4: give"):
        cli.main([*words, str(folder / "out"), "--beam", "4"])
    for output in ("out", "whole"):
        assert cli.main([*words, str(folder / output)]) == 0
    assert (folder / "out").read_bytes() == (folder / "whole").read_bytes()
    assert sorted(os.listdir(folder)) == ["in", "out", "whole"]


@pytest.mark.parametrize(
    "kills, options", [(1, ()), (2, ("--sampling", "--json", "--processes", "2"))]
)
def test_a_killed_translation_is_continued(kills, options, tmp_path):
    check_kills(tmp_path, kills, *options)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--sampling", "--json", "--processes", "2")])
def test_thirty_kills(options, tmp_path):
    check_kills(tmp_path, 30, *options)
