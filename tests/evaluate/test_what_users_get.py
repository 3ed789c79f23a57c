"""Evaluation scores the text that `translate` and an exported model write, line by line."""

import json
import random

import pytest

from fairseq_plugins.api import Translator
from fairseq_plugins.cli import evaluate, export
from tests.tiny_runs import prepare

WORDS = "tea milk rice bread salt soup fish corn".split()
MODEL = (
    "--arch transformer_ftc --encoder-blocks 1,1 --share-all-embeddings --copy-attention"
    " --copy-next --max-source-positions 150 --max-target-positions 420"
).split()
NOT_IN_THE_DICTIONARY = "Łódź 北京 fish"
ODD = [
    "tea rice",
    "",
    "  ",
    "\u200b",
    "a",
    ".",
    "\u00e9",
    NOT_IN_THE_DICTIONARY,
    " ".join(["rice salt"] * 55),  # longer translations are allowed here than for short lines
    " ".join(["tea milk, fish soup."] * 60),  # longer than the model reads
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A language whose translation is a copy, with odd lines in the test set."""
    folder, draw = tmp_path_factory.mktemp("copies"), random.Random(1)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(1, 8))) + "." for _ in range(200)]
    text = {"train": lines, "valid": lines[:10], "test": ODD + lines[:6]}
    text = {split: (some, some) for split, some in text.items()}
    prepare(folder, text, *"--joined-dictionary --subword bpe --vocab-size 40".split())
    return folder


@pytest.fixture(scope="module")
def run(folder, run_train, train_args):
    run_train(
        *(folder / "data", *train_args, *MODEL, "--save-dir", folder / "run", "--lr", 0.01),
        *("--max-update", 60, "--no-epoch-checkpoints"),
    )
    return folder / "run"


def call(command, *words):
    return command.main([str(word) for word in words])


def written(run, split="test"):
    (found,) = (run / "evaluation").glob(f"{split}-*/outputs.jsonl")
    return [json.loads(line)["hypothesis"] for line in found.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def exported(folder, run):
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install '.[test]'")
    place = folder / "exported"
    assert export.main([str(run), "--out", str(place)]) == 0
    return Translator(place)


def test_hypotheses_are_what_translate_and_an_exported_model_write(folder, run, exported):
    call(evaluate, folder / "data", run, "--cpu")
    lines = (folder / "data" / "text" / "raw" / "test.de").read_text("utf-8").split("\n")[:-1]
    assert len(lines) == len(ODD) + 6
    found = written(run)
    assert found == Translator(run, cpu=True).translate(lines)
    assert found == exported.translate(lines)
    assert found[1:4] == ["", "", ""] and all(found[:1] + found[4:])
    assert exported.split == [10] and len(found[9]) > 400
    # the characters of the source that the dictionary lacks, each where it stands
    assert found[7].startswith("Łódź 北") and "unk" not in "".join(found)
    assert found[9].startswith("tea milk, fish soup. " * 4)


def test_outputs_that_reach_the_limit_are_counted(folder, run, capsys):
    """An empty line, and two without visible text, have no output."""
    words = [folder / "data", run, "--cpu", "--", "--max-len-a", 0, "--max-len-b", 1]
    call(evaluate, *words)
    said = "".join(capsys.readouterr())
    assert f"of {len(ODD) + 6} outputs reached the length limit and may be cut off" in said


def test_copied_words_have_the_characters_of_the_source(folder, run, exported):
    """In 8 bits, in each of several hypotheses, and behind a prefix that is unknown, too."""
    rounded = Translator(run, cpu=True, int8=True).translate([NOT_IN_THE_DICTIONARY])
    several = Translator(folder / "exported", nbest=4)
    (found,) = several.hypotheses([NOT_IN_THE_DICTIONARY])
    assert found[0].text == exported.translate([NOT_IN_THE_DICTIONARY])[0] and len(found) == 4
    (begun,) = several.hypotheses([NOT_IN_THE_DICTIONARY], ["Żółw"])
    assert all(each.text.startswith("Żółw") for each in begun)
    known = set("".join([NOT_IN_THE_DICTIONARY, "Żółw.", *WORDS]))
    for text in [*rounded, *(each.text for each in [*found, *begun])]:
        assert text and set(text) <= known and "unk" not in text


def test_the_hypotheses_are_those_of_an_exported_model(folder, run, exported):
    """With a prefix or without; sampling repeats its draws."""
    lines, begin = ["tea rice", "", NOT_IN_THE_DICTIONARY], ["", "fish", "soup"]
    one, other = (Translator(m, cpu=True, nbest=3) for m in (run, folder / "exported"))
    for prefixes in (None, begin):
        for these, those in zip(*(m.hypotheses(lines, prefixes) for m in (one, other))):
            assert [(t.text, t.complete) for t in these] == [(t.text, t.complete) for t in those]
            assert [t.score for t in these] == pytest.approx([t.score for t in those], abs=1e-4)
            assert len(these) in (1, 3)
    assert all(t.text.startswith("soup") for t in one.hypotheses(lines, begin)[2])
    drawing = {"cpu": True, "sampling": True, "temperature": 3.0}
    drawn = [Translator(run, **drawing, seed=seed).translate(lines) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
