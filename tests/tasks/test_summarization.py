"""--eval-rouge: the figures are fairseq-generate's, and choose the best checkpoint."""

import re
from pathlib import Path
from unittest import mock

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.logging import metrics

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.scoring.rouge import lost_words
from fairseq_plugins.tasks.summarization import SummarizationConfig, SummarizationTask
from tests.conftest import OPTIMIZATION, TINY_TRANSFORMER, binarise, load

ROUGE = "rouge1 rouge2 rougeL rougeLsum".split()


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Documents of three words; the summary is each of the last two as a sentence."""
    folder = tmp_path_factory.mktemp("summaries")
    words = "ant bee cow dog eel fox".split()
    for split, size in (("train", 90), ("valid", 13)):
        documents = [[words[(i * k + i // 6) % 6] for k in (1, 5, 3)] for i in range(size)]
        (folder / (split + ".source")).write_text("".join(" ".join(d) + "\n" for d in documents))
        (folder / (split + ".target")).write_text(
            "".join("{} is here . <q> so is {}\n".format(*d[1:]) for d in documents)
        )
    return binarise(folder, folder / "bin")


@pytest.fixture(scope="module")
def training(tmp_path_factory, data, run_train, train_args):
    folder = tmp_path_factory.mktemp("training")
    output = run_train(
        *[data, *train_args, "--task", "summarization", "--eval-rouge", "--max-epoch", 4],
        *["--eval-rouge-args", '{"beam": 2, "max_len_b": 12}', "--save-dir", folder],
        *["--lr", 0.01, "--log-format", "simple", "--cpu"],
        *["--best-checkpoint-metric", "rougeLsum", "--maximize-best-checkpoint-metric"],
    ).output
    found = [
        {name: float(value) for name, value in re.findall(r"\b(rouge\w+) ([\d.]+)", line)}
        for line in output.splitlines()
        if "valid on 'valid' subset" in line
    ]
    return folder, output, found


def test_best_checkpoint_has_the_highest_rouge(training):
    folder, _, found = training
    assert len(found) == 4 and all(set(ROUGE) <= set(figures) for figures in found)
    assert found[-1]["rouge1"] > found[0]["rouge1"]  # it learns
    best = max(range(4), key=lambda epoch: found[epoch]["rougeLsum"])
    scores = [load(folder, f"checkpoint{n}.pt")["extra_state"]["val_loss"] for n in (1, 2, 3, 4)]
    state = load(folder, "checkpoint_best.pt")["extra_state"]
    assert state["val_loss"] == max(scores) == pytest.approx(found[best]["rougeLsum"], abs=0.01)
    assert state["best"] == max(scores)


def test_figures_are_those_of_fairseq_generate(training, data, run_generate):
    folder, _, found = training
    output = run_generate(
        *[data, "--path", folder / "checkpoint_last.pt", "--gen-subset", "valid", "--beam", 2],
        *["--max-len-b", 12, "--scoring", "rouge", "--batch-size", 4],
        *["--task", "summarization", "--cpu"],
    ).output
    figures = re.search(r"F1 = ([\d./]+)", output).group(1).split("/")
    assert [float(n) for n in figures] == pytest.approx(
        [found[-1][metric] for metric in ROUGE], abs=0.011
    )


def test_validation_counts_words_of_any_script(tmp_path, run_train, train_args, monkeypatch):
    words = "муравей пчела корова собака".split()
    for split, size in (("train", 40), ("valid", 8)):
        lines = "".join(" ".join(words[(i * k) % 4] for k in (1, 3)) + "\n" for i in range(size))
        for side in ("source", "target"):
            (tmp_path / f"{split}.{side}").write_text(lines, encoding="utf-8")
    train = [binarise(tmp_path, tmp_path / "bin"), *train_args, "--task", "summarization"]
    train += ["--eval-rouge", "--cpu"]
    train += ["--max-epoch", 3, "--lr", 0.03, "--log-format", "simple", "--save-dir", tmp_path]
    without = run_train(*train, "--no-save").output
    assert set(re.findall(r"rouge1 ([\d.]+)", without)) == {"0"}
    assert (
        len(re.findall(r" ROUGE: \d+ documents had a reference without a letter a to z", without))
        == 1
    )
    checked = mock.Mock(wraps=lost_words)
    monkeypatch.setattr("fairseq_plugins.scoring.rouge.lost_words", checked)
    output = run_train(*train, "--no-save", "--eval-rouge-unicode").output
    assert checked.call_count == 1  # of 3 validations
    assert max(map(float, re.findall(r"rouge1 ([\d.]+)", output))) > 0
    assert "without a letter" not in output
    with pytest.raises(ConfigurationError, match="give one of the two options"):
        run_train(*train, "--eval-rouge-unicode", "--eval-rouge-stemmer")


@pytest.mark.parametrize(
    "reference, summary, option, value",
    [
        ("it rains", "it rained", "eval_rouge_stemmer", True),
        ("дождь", "дождь", "eval_rouge_unicode", True),
        ("\u2581it \u2581rains", "\u2581it \u2581ra ins", "eval_rouge_remove_bpe", "sentencepiece"),
    ],
)
def test_rouge_of_a_batch_obeys_its_options(reference, summary, option, value, monkeypatch):
    dictionary = Dictionary()
    target, found = (dictionary.encode_line(text, append_eos=True) for text in (reference, summary))
    sums = []
    for options in ({}, {option: value}):
        cfg = SummarizationConfig(data="", **options)
        task = SummarizationTask(cfg, dictionary, dictionary)
        monkeypatch.setattr(task, "rouge_generator", None, raising=False)
        monkeypatch.setattr(task, "inference_step", lambda *a, **how: [[{"tokens": found}]] * 2)
        sums.append(task._rouge_sums({"target": torch.stack([target, target])}, None)["rouge1"])
    assert sums[0] < sums[1] == pytest.approx(200)  # of two documents


def test_the_mean_is_over_documents_and_not_over_batches():
    task = SummarizationTask(SummarizationConfig(data="", eval_rouge=True), *[Dictionary()] * 2)
    criterion = LabelSmoothedCrossEntropyCriterion(task, False, 0.1)
    counts = dict.fromkeys(("loss", "nll_loss", "ntokens", "nsentences", "sample_size"), 1)
    logs = [
        {**counts, "_rouge_documents": size, "_rouge_rouge1": total}
        for size, total in ((1, 10.0), (3, 90.0))
    ]
    for batches in ([[logs[0]], [logs[1]]], [logs]):  # one after the other, of two processes
        with metrics.aggregate() as logged:
            for batch in batches:
                task.reduce_metrics(batch, criterion)
        assert logged["rouge1"].avg == pytest.approx(100 / 4)


# --------------------------------------------------------------------------------------------------
# Long documents

LONG = 9000
TRANSFORMER = [*TINY_TRANSFORMER, *OPTIMIZATION, "--task", "summarization", "--cpu"]
BLOCKS = "--arch fastformer_encoder --encoder-blocks 1,1 --time-window 2".split()
FASTFORMER_TC = [*TRANSFORMER, *BLOCKS]


@pytest.fixture(scope="module")
def long_data(tmp_path_factory) -> Path:
    """Documents of 1 to 9,000 words, one of 9,000 in each split; summaries of 1 to 12 words."""
    folder = tmp_path_factory.mktemp("long")
    words = "ant bee cow dog eel fox".split()
    lengths = {"train": [3, LONG, 700, 40, 1, 8192, 5], "valid": [LONG, 20], "test": [30, LONG, 2]}
    for split, numbers in lengths.items():
        for side, cap in (("source", LONG), ("target", 12)):
            (folder / f"{split}.{side}").write_text(
                "".join(
                    " ".join(words[i * i % 6] for i in range(min(n, cap))) + "\n" for n in numbers
                )
            )
    return binarise(folder, folder / "bin", splits=lengths)


@pytest.fixture(scope="module")
def long_training(tmp_path_factory, long_data, run_train):
    """A model that reads 16,384 positions, and the log of its training."""
    folder = tmp_path_factory.mktemp("long-training")
    output = run_train(
        *[long_data, *FASTFORMER_TC, "--max-source-positions", 16384, "--max-tokens", 10000],
        *["--max-epoch", 1, "--save-dir", folder, "--log-format", "simple"],
    ).output
    return folder, output


def test_documents_of_9000_tokens_train_validate_and_generate(
    long_training, long_data, run_generate
):
    folder, output = long_training
    losses = [float(loss) for loss in re.findall(r"train_inner .* loss=([\d.]+)", output)]
    # the two long ones in batches of their own, padding included
    assert len(losses) == 3 and all(0 < loss < 10 for loss in losses)
    assert re.search(r"valid on 'valid' subset .* loss [\d.]+", output)
    assert "skipped" not in output and "not read" not in output
    generated = run_generate(
        *[long_data, "--path", folder / "checkpoint_last.pt", "--task", "summarization"],
        *["--beam", 2, "--max-len-b", 6, "--cpu"],
    ).output
    assert len(re.findall(r"^H-", generated, re.MULTILINE)) == 3


@pytest.mark.parametrize("model", [FASTFORMER_TC, TRANSFORMER], ids=["ours", "fairseq's"])
def test_truncated_tokens_are_counted(long_data, run_train, tmp_path, model):
    output = run_train(
        *[long_data, *model, "--max-source-positions", 500, "--truncate-source"],
        *["--max-tokens", 1000, "--max-epoch", 1, "--no-save", "--save-dir", tmp_path],
    ).output
    cut_off, whole = 8501 + 7693 + 201, 4 + 9001 + 701 + 41 + 2 + 8193 + 6  # with the end symbols
    assert (
        "train: 3 of 7 documents are longer than 500 positions and cut there: "
        f"{cut_off:,} of {whole:,} tokens (91.3 %) are not read"
    ) in output
    assert "valid: 1 of 2 documents are longer than 500 positions" in output
    assert "skipped" not in output
    assert len(re.findall("train_inner", output)) == 3


def test_generation_reads_documents_as_training_did(
    long_data, run_train, run_generate, run_validate, tmp_path
):
    run_train(
        *[long_data, *FASTFORMER_TC, "--max-source-positions", 2000, "--truncate-source"],
        *["--max-tokens", 2000, "--max-update", 1, "--save-dir", tmp_path],
        *["--disable-validation"],
    )
    words = [long_data, "--path", tmp_path / "checkpoint_last.pt", "--cpu"]
    generate = [*words, "--task", "summarization", "--beam", 1, "--max-len-b", 3]
    output = run_generate(*generate).output
    assert "test: 1 of 3 documents are longer than 2,000 positions" in output
    assert len(re.findall(r"^H-", output, re.MULTILINE)) == 3
    assert "than 50 positions" in run_generate(*generate, "--max-source-positions", 50).output
    assert "valid: 1 of 2 documents are longer than 2,000" in (
        run_validate(*words, "--max-tokens", 2000).output
    )


def test_interactive_cuts_documents_too(long_training, long_data, run_interactive):
    folder, _ = long_training
    documents = ["ant bee", " ".join("ant bee cow dog eel fox ".split() * 40)]
    words = [long_data, "--path", folder / "checkpoint_last.pt", "--task", "summarization"]
    words += ["--beam", 2, "--max-len-b", 6, "--max-source-positions", 101, "--cpu"]

    def summaries(lines, *more):
        text = "".join(line + "\n" for line in lines)
        output = run_interactive(*words, *more, stdin=text).output
        return re.findall(r"^H-\d+\t(.*)$", output, re.MULTILINE), output

    with pytest.raises(Exception, match=r"sample #0 is invalid .*\(101, 1024\).*--skip"):
        summaries(documents)
    cut, output = summaries(documents, "--truncate-source")
    assert "input: 1 of 1 documents are longer than 101 positions" in output
    assert "140 of 241 tokens" in output
    assert len(cut) == 2
    assert cut == summaries([" ".join(line.split()[:100]) for line in documents])[0]
