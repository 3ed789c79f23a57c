"""Scores of fairseq-generate's output: order, count, and sacreBLEU's own numbers."""

import json

import pytest
import sacrebleu

from scripts import score_generation

REFERENCE = ["the first sentence is here .", "a second one follows it now", "and a third to end"]
TRANSLATIONS = ["the first sentence is there .", "a second one follows it now", "a third to end"]


@pytest.fixture
def files(tmp_path):
    def write(numbers, name="generate.log"):
        lines = []
        for number in numbers:  # fairseq prints the longest first, and n-best lists best first
            lines += [f"S-{number}\tQuelle {number}", f"T-{number}\t{REFERENCE[number]}"]
            for rank, text in enumerate([TRANSLATIONS[number], "a worse one"]):
                lines += [f"H-{number}\t-0.{rank}\t{text}", f"D-{number}\t-0.{rank}\t{text}"]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / name

    (tmp_path / "test.de").write_text("eins\nzwei\ndrei\n", encoding="utf-8")
    (tmp_path / "test.en").write_text("\n".join(REFERENCE) + "\n", encoding="utf-8")
    return write, tmp_path


def score(generated, folder, *words):
    sides = ["--source", str(folder / "test.de"), "--reference", str(folder / "test.en")]
    return score_generation.main([str(generated), *sides, *words])


def test_scores_are_sacrebleus_in_the_order_of_the_file(files, capsys):
    write, folder = files
    assert score(write([1, 0, 2]), folder, "--json", str(folder / "scores.json")) == 0
    scores = json.loads((folder / "scores.json").read_text())
    expected = sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCE])
    assert scores["BLEU"]["score"] == expected.score
    printed = capsys.readouterr().out
    assert f"BLEU = {expected.score:.2f}  nrefs:1|case:mixed" in printed
    assert "translation a third to end" in printed


@pytest.mark.parametrize(
    "numbers, message",
    [([0, 2], "lacks 1 translation.* number 1"), ([0, 1], "2 translations of 3 sentences")],
)
def test_missing_translations_are_an_error(files, numbers, message):
    write, folder = files
    with pytest.raises(SystemExit, match=message):
        score(write(numbers), folder)


def test_goal_decides_the_exit_status(files):
    write, folder = files
    generated = write([0, 1, 2])
    assert score(generated, folder, "--at-least", "30") == 0
    assert score(generated, folder, "--at-least", "99") == 1
