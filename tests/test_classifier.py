"""From labelled texts to labels of new ones, by the real commands."""

import json
import shutil
import subprocess
import sys
from unittest import mock

import pytest
import torch

from fairseq_plugins import cli
from fairseq_plugins.api import Classifier, Translator
from fairseq_plugins.cli import classify as command
from fairseq_plugins.cli import evaluate, train
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.pretrained import is_export
from fairseq_plugins.search.onnx_backend.folder import Folder
from fairseq_plugins.system import workers
from fairseq_plugins.train import planning
from tests.labelled import SIZES, TINY, TRAINING, prepare

UPDATES = ["--max-update", 24]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("labelled"))[0]


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory, run_train):
    folder = tmp_path_factory.mktemp("run")
    run_train(data, *TINY, *TRAINING, "--save-dir", folder, *UPDATES)
    return folder


def test_a_trained_model_knows_the_words(trained):
    classifier = Classifier(trained, cpu=True)
    texts = ["bright fine film", "", "poor dull slow film", "quick  film", "x " * 40]
    found = classifier.classify(texts)
    assert [found[i].label for i in (0, 2, 3)] == ["good", "bad", "good"]
    assert all(0.5 <= prediction.probability <= 1 for prediction in found)
    assert classifier.cut == [5] and classifier.empty == [2]
    # what else is in a batch changes nothing
    for text, prediction in zip(texts, found):
        (alone,) = Classifier(trained, cpu=True, max_tokens=1).classify([text])
        assert alone.label == prediction.label
        assert alone.probability == pytest.approx(prediction.probability, abs=1e-5)


def test_the_command_writes_a_line_for_each_line(trained, converse):
    text = "poor film\nfine film\n" + "fine " * 50 + "\n"
    out, err = converse(command.main, text, "--model", trained, "--cpu")
    lines = [line.split("\t") for line in out.splitlines()]
    assert [label for label, _ in lines] == ["bad", "good", "good"]
    assert all(0.5 < float(probability) <= 1 for _, probability in lines)
    assert "1 line over the model's limit of 31 tokens" in err and "number 3" in err


def test_evaluate_scores_what_was_binarised(data, trained, capsys):
    words = [str(data), str(trained), "--cpu", "--examples", "2"]
    assert evaluate.main(words) == 0
    out = capsys.readouterr().out
    folder = trained / "evaluation" / "test-checkpoint_best"
    stored = json.loads((folder / "scores.json").read_text())
    score = stored["scores"]["accuracy"]
    assert score["score"] > 80 and stored["sentences"] == SIZES["test"]
    assert f"  accuracy = {score['score']:.2f} [" in out and "  macro F1 = " in out
    assert "  reference   bad" in out and "  source      " in out
    # binarised and raw texts are read alike
    raw = (data / "text" / "raw" / "test.source").read_text().splitlines()
    labels = [prediction.label for prediction in Classifier(trained, cpu=True).classify(raw)]
    outputs = folder / "outputs.jsonl"
    written = [json.loads(line) for line in outputs.read_text("utf-8").splitlines()]
    assert [row["hypothesis"] for row in written] == labels
    before = outputs.stat().st_mtime_ns
    assert evaluate.main(words) == 0
    assert "kept:" in capsys.readouterr().err
    assert outputs.stat().st_mtime_ns == before
    with pytest.raises(ConfigurationError, match="accuracy 100.00 is below --at-least 101"):
        evaluate.main([*words, "--at-least", "101"])


def test_an_export_is_as_good_as_its_checkpoint(data, trained, tmp_path, monkeypatch, capsys):
    """It classifies without torch, and evaluate compares it with the training."""
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install '.[test]'")
    out = tmp_path / "exported"
    assert cli.main(["export", str(trained), "--out", str(out), "--int8"]) == 0
    lines = capsys.readouterr().err.splitlines()
    told = "float32: torch's label or a tie for 12 of 12 texts; probabilities differ by up to"
    assert any(line.startswith(told) for line in lines)
    texts = ["bright fine film", "", "poor dull slow film", "quick  film", "x " * 40]
    exported, checkpoint = Classifier(out), Classifier(trained, cpu=True)
    assert exported.max_tokens_of_text == checkpoint.max_tokens_of_text
    for ours, theirs in zip(exported.classify(texts), checkpoint.classify(texts)):
        assert ours.label == theirs.label
        assert ours.probability == pytest.approx(theirs.probability, abs=0.02)
    assert (exported.cut, exported.empty) == ([5], [2])
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "fairseq_plugins", "classify", "--model", out],
        input="poor film\nfine film\n", capture_output=True, text=True,
    )  # fmt: skip
    assert [line.split("\t")[0] for line in run.stdout.splitlines()] == ["bad", "good"]
    imported = {line.split("|")[-1].strip() for line in run.stderr.splitlines() if "|" in line}
    assert "onnxruntime" in imported and not imported & {"torch", "fairseq", "onnx"}
    (tmp_path / "in").write_text("".join(text + "\n" for text in texts))
    words = ["classify", "--model", out, "--input", tmp_path / "in", "--output"]
    asked = mock.Mock(side_effect=workers.map_batches)
    monkeypatch.setattr(workers, "map_batches", asked)
    for name, more in (("one", []), ("two", ["--processes", 2, "--buffer", 4])):
        capsys.readouterr()
        assert cli.main([str(word) for word in [*words, tmp_path / name, *more]]) == 0
        told = capsys.readouterr().err
        assert "1 line without text got a meaningless label: number 2" in told
        assert "1 line over the model's limit of " in told and told.endswith(
            "truncated: number 5\n"
        )
    assert [call.args[2] for call in asked.call_args_list] == [2]
    one, two = (
        [line.split("\t")[0] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("one", "two")
    )
    assert one == two == [label for label, _ in exported.classify(texts)]
    copy = shutil.copytree(data, tmp_path / "copy")
    scored = [str(copy), str(out), "--cpu"]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    with mock.patch.object(Folder, "session", autospec=True, side_effect=Folder.session) as opened:
        assert evaluate.main([*scored, "--compare", str(trained)]) == 0
    assert [call.args[0].threads for call in opened.call_args_list] == [3]
    assert "  accuracy +0.00, p = " in capsys.readouterr().out
    dictionary = copy / "input0" / "dict.txt"
    dictionary.write_text("".join(sorted(dictionary.read_text().splitlines(True))))
    with pytest.raises(ConfigurationError, match=r"was not trained with .* \(input0/dict.txt\)"):
        evaluate.main(scored)
    for words, told in (
        ({"data": data}, "--data is for checkpoints, but .* is an exported model"),
        ({"model": trained, "threads": 2}, "--threads is for exported models"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            Classifier(**{"model": out, **words})
    with pytest.raises(ConfigurationError, match="is a classifier: use the command classify"):
        Translator(out)
    with pytest.raises(ConfigurationError, match="writes text: use the command translate"):
        Classifier("tatoeba-de-en")
    (out / "config.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="config.json is not that of an exported model"):
        evaluate.main(scored)
    (out / "checkpoint_best.pt").touch()  # a training with a file of this name
    assert not is_export(out)


@pytest.mark.parametrize("words", ["", "--init-token 0", "--max-positions 7 --init-token 2"])
def test_long_texts_are_cut_as_in_training(words, run_train, tmp_path, monkeypatch):
    """Raw texts become the tokens of the binarised ones, whatever cuts them."""
    folder, _ = prepare(tmp_path, "--words", "--max-positions", 8)
    cut = ["--shorten-method", "truncate", "--max-positions", 6, *words.split()]
    run_train(folder, *TINY, *TRAINING, *cut, "--max-update", 1, "--save-dir", tmp_path / "run")
    classifier = Classifier(tmp_path / "run", cpu=True)
    engine, seen = classifier.engine, []
    compute = engine.probabilities
    monkeypatch.setattr(engine, "probabilities", lambda t: seen.extend(t) or compute(t))
    raw = (folder / "text/raw/test.source").read_text().splitlines()
    classifier.classify(raw)
    binary = engine.task.load_dataset("test")
    binary = [binary[index]["net_input.src_tokens"].tolist() for index in range(len(raw))]
    assert sorted(seen) == sorted(binary)
    seen.clear()
    kept = [text.split()[:7] for text in raw]  # as the folder was prepared
    classifier.classify_pieces(kept)
    assert sorted(seen) == sorted(binary)
    limit = classifier.max_tokens_of_text
    assert limit == {"": 6, "--init-token 0": 5}.get(words, 6)
    assert classifier.cut == [n for n, text in enumerate(raw, 1) if len(text.split()) > limit]
    assert 0 < len(classifier.cut) < len(raw)


def test_fairseqs_own_task_trains_it_too(data, run_train, tmp_path):
    words = [*TRAINING, "--task", "sentence_prediction", "--num-classes", 2, "--max-update", 2]
    run_train(data, *TINY, *words, "--init-token", 0, "--save-dir", tmp_path)
    (found,) = Classifier(tmp_path, cpu=True).classify(["fine film"])
    assert found.label in ("bad", "good")


def test_every_kind_of_option_trains_and_loads(data, run_train, tmp_path, monkeypatch):
    words = (
        "--encoder-blocks 1,1 --time-window 2 --encoder-token-mixer performer --encoder-ffn switch"
    )
    words += " --sentence-pooling mean --shorten-method truncate"
    run_train(data, *TINY, *words.split(), *TRAINING, "--max-positions", 6, *UPDATES,
              "--save-dir", tmp_path)  # fmt: skip
    classifier = Classifier(tmp_path, data=data, cpu=True)
    assert classifier.classify(["poor slow dull poor film film film"])[0].label == "bad"
    assert classifier.cut == [1]
    # data may be cut shorter than the model reads, which is known before the first text
    monkeypatch.setattr("fairseq_plugins.api.load_cut", lambda folder: (str.split, 4))
    assert Classifier(tmp_path, data=data, cpu=True).max_tokens_of_text == 4


def test_a_recipe_reads_the_folder(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without --save-dir a training is in runs/

    def plan(folder, *words):
        request = ["imdb", folder, "--cpu", "--settings", "reduced_cpu", "--", *words]
        return planning.plan(train.read_request([str(word) for word in request]))

    todo = plan(data, "--encoder-token-mixer", "bigbird")
    assert todo.given.encoder_token_mixer == "bigbird" and todo.given.max_positions == 256
    texts = (data / "text/raw/train.source").read_text().splitlines()
    longest = max(len(text.split()) for text in texts)
    with pytest.raises(ConfigurationError, match=f"sentence of train has {longest + 1} tokens"):
        plan(data, "--max-tokens", 4)
    plan(data, "--max-tokens", 4, "--max-positions", 4)  # cuts them
    # other labels are other data, though all names are the same
    other = tmp_path / "other"
    shutil.copytree(str(data), str(other))
    (other / "label" / "dict.txt").write_text("good 30\nbad 30\n")
    assert plan(data).settings["data"] == todo.settings["data"]
    assert plan(other).settings["data"] != todo.settings["data"]


def test_what_does_not_fit_is_told_in_one_line(trained, tiny_checkpoint, toy_data, tmp_path):
    with pytest.raises(ConfigurationError, match="writes no text: it is a classifier"):
        Translator(trained, cpu=True)
    with pytest.raises(ConfigurationError, match="is not a classifier: it writes text"):
        Classifier(tiny_checkpoint, toy_data.bin, cpu=True)
    other, _ = prepare(tmp_path, "--bytes")
    with pytest.raises(ConfigurationError, match="was not trained with the dictionaries in"):
        Classifier(trained, other, cpu=True)
    with pytest.raises(ConfigurationError, match="has no dictionaries"):
        Classifier(trained, tmp_path, cpu=True)
