"""--eval-rouge: the figures are fairseq-generate's, and choose the best checkpoint."""

import re
from pathlib import Path

import pytest
import torch

import fairseq_plugins.tasks.summarization  # noqa: F401  (fairseq does it for a new --user-dir)
from fairseq_plugins.errors import ConfigurationError

ROUGE = "rouge1 rouge2 rougeL rougeLsum".split()


@pytest.fixture(scope="module")
def data(tmp_path_factory, run_preprocess) -> Path:
    """Documents of three words; the summary is each of the last two as a sentence."""
    folder = tmp_path_factory.mktemp("summaries")
    words = "ant bee cow dog eel fox".split()
    for split, size in (("train", 90), ("valid", 13)):
        documents = [[words[(i * k + i // 6) % 6] for k in (1, 5, 3)] for i in range(size)]
        (folder / (split + ".source")).write_text("".join(" ".join(d) + "\n" for d in documents))
        (folder / (split + ".target")).write_text(
            "".join("{} is here . <q> so is {}\n".format(*d[1:]) for d in documents)
        )
    run_preprocess(
        *["--source-lang", "source", "--target-lang", "target", "--destdir", folder / "bin"],
        *["--trainpref", folder / "train", "--validpref", folder / "valid", "--workers", 1],
    )
    return folder / "bin"


@pytest.fixture(scope="module")
def training(tmp_path_factory, data, run_train, train_args):
    folder = tmp_path_factory.mktemp("training")
    output = run_train(
        *[data, *train_args, "--task", "summarization", "--eval-rouge", "--max-epoch", 4],
        *["--eval-rouge-args", '{"beam": 2, "max_len_b": 12}', "--save-dir", folder],
        *["--eval-rouge-print-samples", "--lr", 0.01, "--log-format", "simple", "--cpu"],
        *["--best-checkpoint-metric", "rougeLsum", "--maximize-best-checkpoint-metric"],
    ).output
    found = [
        {name: float(value) for name, value in re.findall(r"\b(rouge\w+) ([\d.]+)", line)}
        for line in output.splitlines()
        if "valid on 'valid' subset" in line
    ]
    return folder, output, found


def test_every_epoch_has_rouge(training):
    _, output, found = training
    assert len(found) == 4
    assert all(set(ROUGE) <= set(figures) for figures in found)
    assert "example summary: " in output and "<q>" in output.split("example reference: ")[1]
    assert found[-1]["rouge1"] > found[0]["rouge1"]  # it learns


def test_best_checkpoint_has_the_highest_rouge(training):
    folder, _, found = training
    best = max(range(4), key=lambda epoch: found[epoch]["rougeLsum"])
    scores = [
        torch.load(str(folder / name), map_location="cpu")["extra_state"]["val_loss"]
        for name in ["checkpoint{}.pt".format(n) for n in (1, 2, 3, 4)]
    ]
    state = torch.load(str(folder / "checkpoint_best.pt"), map_location="cpu")["extra_state"]
    assert state["val_loss"] == max(scores) == pytest.approx(found[best]["rougeLsum"], abs=0.01)
    assert state["best"] == max(scores)


def test_figures_are_those_of_fairseq_generate(training, data, run_generate):
    folder, _, found = training
    output = run_generate(
        *[data, "--path", folder / "checkpoint_last.pt", "--gen-subset", "valid", "--beam", 2],
        *["--max-len-b", 12, "--scoring", "rouge", "--rouge-resamples", 0, "--batch-size", 4],
        *["--task", "summarization", "--cpu"],
    ).output
    figures = re.search(r"F1 = ([\d./]+)", output).group(1).split("/")
    assert [float(n) for n in figures] == pytest.approx(
        [found[-1][metric] for metric in ROUGE], abs=0.011
    )


@pytest.mark.parametrize("option", ["--eval-rouge-args", "--eval-rouge-detok-args"])
@pytest.mark.parametrize("value", ["{beam: 2}", "[2]"])
def test_bad_json_is_one_clear_error(option, value, data, run_train, train_args, tmp_path):
    with pytest.raises(ConfigurationError, match=option):
        run_train(
            *[data, *train_args, "--task", "summarization", "--eval-rouge", option, value],
            *["--save-dir", tmp_path, "--cpu"],
        )
