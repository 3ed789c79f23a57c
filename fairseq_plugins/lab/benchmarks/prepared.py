"""Prepared measurements: goals on a CPU, README's ratios, runs on a GPU, the papers' times.

`prepared.yaml` has all of them. A new measurement is an entry there.
"""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import yaml

from fairseq_plugins.files import read_json, write_json

FOLDERS = ("DATA", "SUMMARIES", "MULTI30K")  # placeholders for prepared folders
DEFINITION = "measurement"  # in the file of one: what it was
RESUMING = ("train ", "reproduce ", "benchmark figure2", "benchmark table3")


def _read() -> dict[str, Any]:
    content = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    names: dict[str, str] = {}
    for name, words in content.pop("names").items():
        names[name] = Template(words).substitute(names)

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return Template(value).substitute(names) if isinstance(value, str) else value

    return filled(content)


class Part(NamedTuple):
    """A command that measures contenders.

    Args:
        name: of its files.
        words: what follows `fairseq-plugins`, or `pytest`, with placeholders.
        contenders: words of models, for --arch or --contender; the first is the baseline.
        options: of all contenders.
        seconds: its time limit.
        triton: FAIRSEQ_PLUGINS_TRITON, or None for the default.
        after: the part of the run whose result it reads.
    """

    name: str
    words: str
    contenders: Sequence[str] = ()
    options: str = ""
    seconds: float = 0.0
    triton: bool | None = None
    after: str = ""

    @property
    def resumes(self) -> bool:
        """Whether it goes on where a time limit stopped it."""
        return self.words.startswith(RESUMING)

    @property
    def needs(self) -> list[str]:
        """Which prepared folders the part needs."""
        return [name for name in FOLDERS if name in self.words.split()]

    def command(self, places: dict[str, Any], toy: bool = False) -> list[str]:
        """The words of the command line.

        Args:
            places: what DATA, WORK and so on stand for.
            toy: the toy size, on a CPU.
        """
        first = self.words.split()
        kind = " ".join(first[:2]) if first[0] == "benchmark" else first[0]
        own, _, behind = self.words.partition(" -- ")
        words, more = shlex.split(own), shlex.split(behind)
        option = (
            "--arch" if kind in ("benchmark train-step", "benchmark gpu-part") else "--contender"
        )
        for contender in self.contenders:
            folder = shlex.quote(str(places.get("FOLDER")))
            words += [option, contender.replace("FOLDER", folder)]
        words += ["--options", self.options] if self.options else []
        if toy:
            before, _, after = TOYS[kind].partition(" -- ")
            words += shlex.split(before)
            more += shlex.split(after)
        words += ["--", *more] if more else []
        return [_filled(word, places) for word in words]

    def measure(self, places: dict[str, Any], path: Path, more: Sequence[str]) -> bool:
        """Run the command in a new process; returns whether it wrote its figures to `path`."""
        command = [sys.executable, "-m", "fairseq_plugins", *self.command(places)]
        done = subprocess.run(
            [*command, *more, "--json", str(path)], stdout=subprocess.PIPE, text=True
        )
        if done.returncode != 0 or not path.exists():
            print(f"{self.name} failed, see above", file=sys.stderr, flush=True)
            return False
        path.with_suffix(".md").write_text(done.stdout, encoding="utf-8")
        write_json(path, {**(read_json(path) or {}), DEFINITION: self.definition})
        return True

    @property
    def definition(self) -> list[str]:
        """What decides the figures, apart from the data and the machine."""
        return self.command({})


def _filled(word: str, places: dict[str, Any]) -> str:
    head, slash, tail = word.partition("/")
    return str(places[head]) + slash + tail if head in places else word


class Run(NamedTuple):
    """Parts that belong together, in the order in which they run; at most 8 minutes on a GPU.

    `tests` says whether a model is tested, which needs the text of the data.
    """

    name: str
    what: str
    parts: Sequence[Part]
    tests: bool = False


def _parts(parts: dict[str, dict[str, Any]]) -> dict[str, Part]:
    return {name: Part(name, **fields) for name, fields in parts.items()}


_ALL = _read()
GOALS, SPEED = _parts(_ALL["goals"]), _parts(_ALL["speed"])
JUDGED, HEADLINES, EXPORTS = _ALL["judged"], _ALL["headlines"], _ALL["exports"]
RUNS = [Run(**{**run, "parts": list(_parts(run["parts"]).values())}) for run in _ALL["runs"]]
TOYS, GPU_GOALS, PAPERS = _ALL["toys"], _ALL["gpu_goals"], _ALL["papers"]
