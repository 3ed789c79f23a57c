"""What earlier versions wrote still loads, resumes and gives the same text.

`fixtures/README.md` says what the fixtures hold and how they were made.
"""

import contextlib
import importlib
import json
import os
import shutil
from pathlib import Path

import pytest

from fairseq_plugins import Classifier, Summarizer, Translator, serving
from fairseq_plugins.prepared_folder import Prepared
from fairseq_plugins.run_folder import Run
from tests.conftest import ROOT, unpack
from tests.faults.training import difference, load
from tests.fixtures.make import planned, recording

COMMIT = "d5d21a2"
FIXTURES = ROOT / "tests" / "fixtures"
TRANSLATIONS = ["translation_bpe", "translation_sentencepiece"]
TASKS = [*TRANSLATIONS, "summarization", "classification"]
BY_FAIRSEQ = ["fairseq_transformer", "fairseq_transformer_ftc"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The folder of all fixtures."""
    folder = tmp_path_factory.mktemp("kept")
    unpack(FIXTURES / f"{COMMIT}.tar.xz", folder)
    return folder


@contextlib.contextmanager
def within(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield json.loads(Path("expected.json").read_text(encoding="utf-8"))
    finally:
        os.chdir(before)


@pytest.mark.parametrize("name", TASKS)
def test_the_same_preparation_finds_its_folder_finished(name, kept, capsys):
    with within(kept / name) as expected:
        before = {path: path.stat().st_mtime_ns for path in Path("data").rglob("*")}
        command, *words = expected["prepare"].split()
        module = importlib.import_module("fairseq_plugins.commands." + command.replace("-", "_"))
        assert module.main(words) == 0
        assert {path: path.stat().st_mtime_ns for path in Path("data").rglob("*")} == before


@pytest.mark.parametrize("name", [*TRANSLATIONS, "summarization"])
def test_its_text_becomes_the_same_subwords_and_back(name, kept):
    with within(kept / name) as expected:
        languages = ("source", "target") if name == "summarization" else ("de", "en")
        text = expected["text"]
        for folder in ("data", "export", "export8"):
            processor = Prepared(Path(folder)).processor(*languages)
            assert [processor.encode(line) for line in text["lines"]] == text["encoded"]
            pieces = [processor.encode_target(line) for line in text["lines"]]
            assert pieces == text["encoded_target"]
            assert [processor.decode(line) for line in pieces] == text["decoded"]


def texts_of(model, lines):
    if hasattr(model, "summarize"):
        return [" ".join(found.summary) for found in model.summarize(lines)]
    return model.translate(lines)


@pytest.mark.parametrize("name", [*TRANSLATIONS, "summarization"])
def test_its_models_write_the_same(name, kept):
    with within(kept / name) as expected:
        kind = "Summarizer" if name == "summarization" else "Translator"
        model = {"Summarizer": Summarizer, "Translator": Translator}[kind]
        assert texts_of(model(["run"], cpu=True), expected["lines"]) == expected["texts"]
        pytest.importorskip("onnxruntime")
        for folder in ("export", "export8"):
            model = getattr(serving, kind)(folder)
            assert texts_of(model, expected["lines"]) == expected["texts"]
        if name == "translation_bpe":
            model = serving.Translator("export8", shortlist=True)
            assert texts_of(model, expected["lines"]) == expected["texts"]


def test_its_classifier_finds_the_same(kept):
    with within(kept / "classification") as expected:
        found = Classifier("run", cpu=True).classify(expected["lines"])
        labels, probabilities = zip(*(line.split("\t") for line in expected["texts"]))
        assert [each.label for each in found] == list(labels)
        # other processors round differently
        assert [each.probability for each in found] == pytest.approx(
            [float(each) for each in probabilities], abs=1e-3
        )


def trains_on(run_train, words, run):
    """Train on with these words: the numbers of updates, the sentences of each, and the losses.

    The state at the start is that of the checkpoint to the bit.
    """
    checkpoint, updates = load(Path(run)), []

    def compare(trainer):
        model = trainer.get_model()
        assert {name for name, _ in model.named_parameters()} <= set(checkpoint["model"])
        state = {
            "optimizer_history": [{"num_updates": trainer.get_num_updates()}],
            "model": model.state_dict(),
            "last_optimizer_state": trainer.optimizer.state_dict(),
        }
        for one, other in ((state, checkpoint), (checkpoint, state)):
            for name in set(one["model"]) - set(other["model"]):  # buffers that hold nothing
                del one["model"][name]
        assert difference(state, checkpoint) == ""

    with recording(updates, compare):
        run_train(*words)
    return zip(*updates)


@pytest.mark.parametrize("name", TASKS)
def test_its_training_goes_on(name, kept, run_train):
    with within(kept / name) as expected:
        shutil.copytree("run", "copy")
        end = expected["updates"][-1][0] + 1
        plan, words = planned("recipe.yaml", "data", "copy", end)
        assert Run(Path("copy")).check_same(plan.settings)
        updates, sentences, losses = trains_on(run_train, words, "run")
        before = list(zip(*expected["updates"]))
        assert [updates, sentences] == before[:2]
        # processors may round differently
        assert losses == pytest.approx(before[2], rel=1e-4)


@pytest.mark.parametrize("name", BY_FAIRSEQ)
def test_a_checkpoint_of_fairseq_goes_on(name, kept, run_train):
    with within(kept / name) as expected:
        data = kept / "translation_bpe" / "data"
        shutil.copytree("run", "further")
        words = [str(ROOT / "fairseq_plugins") if w.endswith("/fairseq_plugins") else w
                 for w in expected["words"]]  # fmt: skip
        updates, sentences, losses = trains_on(run_train, [data, *words[1:]], "run")
        before = list(zip(*expected["updates"]))
        assert updates == before[0]
        # its torch and numpy put sentences of equal length in another order, so that some are in
        # other batches, and dropout hits other words
        for ids, other in zip(sentences, before[1]):
            assert len(set(ids) & set(other)) >= 0.9 * max(len(ids), len(other))
        assert losses == pytest.approx(before[2], rel=0.2)


@pytest.mark.parametrize("name", BY_FAIRSEQ)
def test_a_checkpoint_of_fairseq_writes_the_same(name, kept):
    with within(kept / name) as expected:
        data = kept / "translation_bpe" / "data"
        found = Translator("run", data, cpu=True).pieces(expected["lines"])
        assert found == expected["texts"]
