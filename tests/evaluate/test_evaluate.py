"""Evaluation: scores follow from their definitions, and work is neither lost nor done twice."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import sacrebleu
import torch

from fairseq_plugins import files
from fairseq_plugins.cli import evaluate as command
from fairseq_plugins.cli import prepare_summarization
from fairseq_plugins.compat.intact_checkpoints import find_damage
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import translation
from fairseq_plugins.evaluate.summarization import Summaries
from fairseq_plugins.evaluate.translation import Translations
from tests import tiny_runs
from tests.conftest import ROOT, change_task, reversed_copy

TARGET = [  # with what Moses escapes, splits and joins
    "A man isn't running, he's walking!",
    "Two dogs (both brown) play in the snow.",
    'The woman says: "It is 3.5 degrees."',
    "Children & parents eat ice-cream at the lake.",
    "A man walks his dog.",
    "Somebody's bicycle stands in front of the house, doesn't it?",
]


@pytest.fixture(scope="module")
def prepare(tmp_path_factory):
    """prepare(options...) -> a folder made by prepare-translation."""
    text = {"train": TARGET * 20, "test": TARGET * 3, "valid": TARGET}
    text = {split: ([line.upper() for line in lines], lines) for split, lines in text.items()}
    make = tmp_path_factory.mktemp
    return lambda *words: tiny_runs.prepare(make("prepared"), text, "--vocab-size", 80, *words)


@pytest.fixture(scope="module")
def data(prepare):
    return prepare("--lowercase", "--joined-dictionary")


def subwords(data, split="test", language="en"):
    (other,) = set(Prepared(data).languages) - {language}
    raw = (data / "text" / "raw" / f"{split}.{language}").read_text("utf-8").splitlines()
    return list(map(Prepared(data).processor(other, language).encode_target, raw))


def worse(lines):
    """The lines with words missing and in other order."""
    return [" ".join(line.split()[:-2] + line.split()[:1]) for line in lines]


@pytest.mark.parametrize(
    "options",
    [
        ("--lowercase",),
        (),
        ("--subword", "sentencepiece"),
        ("--tokenizer", "none", "--subword", "bpe"),
    ],
    ids=["lower-case", "cased", "sentencepiece", "tokenised before"],
)
def test_scores_follow_from_their_definitions(prepare, options):
    folder = prepare(*options)
    test = Translations(folder, "test", "en")
    pieces = subwords(folder)
    perfect = test.text(pieces)
    assert perfect["tokens"] == test.references["tokens"]
    assert [result["score"] for result in test.score(perfect).values()] == pytest.approx([100] * 3)

    text = test.text(worse(pieces))
    scores = test.score(text)
    assert list(scores) == ["tokenised BLEU", "BLEU", "chrF2"]
    assert 20 < scores["tokenised BLEU"]["score"] < 99
    for name, column, how in (
        ("tokenised BLEU", "tokens", {"tokenize": "none", "lowercase": True}),  # as multi-bleu.perl
        ("BLEU", "hypothesis", {"lowercase": "--lowercase" in options}),
    ):
        expected = sacrebleu.corpus_bleu(text[column], [test.references[column]], **how).score
        assert scores[name]["score"] == pytest.approx(expected)
    assert "tok:13a" in scores["BLEU"]["signature"]
    assert "tok:none" in scores["tokenised BLEU"]["signature"]
    for name in ("BLEU", "chrF2"):
        case = "case:lc" if "--lowercase" in options else "case:mixed"
        assert case in scores[name]["signature"]
    # the references of BLEU and chrF are the raw text, but where that was tokenised before
    raw = (folder / "text" / "raw" / "test.en").read_text("utf-8").splitlines()
    assert test.references["hypothesis"] == raw or "none" in options
    assert ("isn 't" in " ".join(test.references["tokens"]).lower().replace("&apos;", "'")) != (
        "none" in options
    )


def test_a_language_without_spaces_has_its_own_tokeniser(prepare, monkeypatch):
    folder = prepare()
    test = Translations(folder, "test", "en")
    for test.language in ("zh", "zh_CN", "ZH", "zho_Hans", "cmn", "cn"):
        assert type(test.sacrebleu()["BLEU"].tokenizer).__name__ == "TokenizerZh"

    def missing(trg_lang="", **options):
        if trg_lang:
            raise RuntimeError("Japanese tokenization requires extra dependencies")
        return sacrebleu.metrics.BLEU(**options)

    monkeypatch.setattr(translation, "BLEU", missing)
    for code in ("ja", "jp"):
        told = rf"BLEU of the language {code} needs .*sacrebleu\[ja"
        with pytest.raises(ConfigurationError, match=told):
            translation.bleu_of(code, lowercase=False)
    with pytest.raises(ConfigurationError, match="needs a tokeniser"):
        Translations(folder, "test", "en")  # before anything is translated


# --------------------------------------------------------------------------------------------------
# Runs


@pytest.fixture(scope="module")
def run(tmp_path_factory, data, run_train, train_args):
    folder = tmp_path_factory.mktemp("runs") / "a"
    run_train(
        data, *train_args, "--save-dir", folder, "--max-update", 6, "--save-interval-updates", 2,
        "--no-epoch-checkpoints", "--share-all-embeddings", "--keep-best-checkpoints", 2,
    )  # fmt: skip
    return folder


@pytest.fixture
def fresh_run(run, tmp_path):
    return Path(shutil.copytree(str(run), str(tmp_path / "run")))


@pytest.fixture
def translations(monkeypatch, data):
    """The models replaced: `.calls` has the checkpoints, `.pieces` is what they write."""

    class Output:
        calls, pieces, directions, threads = [], worse(subwords(data)), [("de", "en")], None

    def predict(self, models, given, cpu, progress):
        source = self._source.name.split(".")[-1]
        assert (source, self.language) in Output.directions
        assert all(model.is_file() for model in models)
        Output.calls.append(os.pathsep.join(model.name for model in models))
        Output.threads = torch.get_num_threads()
        return self.text(Output.pieces)

    monkeypatch.setattr(Translations, "predict", predict)
    return Output


def column(folder, name):
    lines = (folder / "outputs.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)[name] for line in lines]


def call(*words):
    return command.main([str(word) for word in words])


def test_work_is_kept_until_its_inputs_change(data, fresh_run, translations, tmp_path, capsys):
    words = [data, fresh_run, "--last", 2]
    averages = fresh_run / "evaluation" / "last2.pt"
    call(*words)
    first = capsys.readouterr().out
    assert len(first.splitlines()) == 4 and "tokenised BLEU = " in first
    assert translations.calls == ["last2.pt"]
    call(*words, "--threads", 3)  # which changes nothing
    assert capsys.readouterr().out == first and len(translations.calls) == 1
    assert translations.threads == 1 == torch.get_num_threads()
    averages.unlink()  # large, and not needed again
    call(*words)
    assert len(translations.calls) == 1 and not averages.exists()
    call(*words, "--beam", 1, "--threads", 3)
    assert translations.threads == 3 and torch.get_num_threads() == 1
    # each choice of options has a folder of its own, so the other ones' results stay
    call(*words, "--", "--lenpen", "0.5")
    assert len(translations.calls) == 3 and averages.exists()
    call(*words, "--", "--lenpen=0.5")
    call(*words)
    assert len(translations.calls) == 3
    many = ["--no-repeat-ngram-size", "3", "--max-len-a", "1.2", "--max-len-b", "10"]
    call(*words, "--", *many, "--match-source-len")
    names = {path.name for path in (fresh_run / "evaluation").iterdir() if path.is_dir()}
    assert {"test-last2-beam5", "test-last2-beam1", "test-last2-beam5-lenpen-0.5"} < names
    assert sum(name.startswith("test-last2-beam5-options") for name in names) == 1
    assert len(names) == 4

    # another checkpoint: averaged and translated again
    before = averages.stat().st_mtime_ns
    newest = max(fresh_run.glob("checkpoint_*_6.pt"))
    os.utime(str(newest), ns=(1, 1))
    call(*words)
    assert len(translations.calls) == 5 and averages.stat().st_mtime_ns > before
    # an average that a power cut damaged is made again
    averages.write_bytes(averages.read_bytes()[:-100])
    call(*words, "--beam", 2)
    assert len(translations.calls) == 6 and not find_damage(str(averages))
    # and so is output that is no longer whole
    text = fresh_run / "evaluation" / "test-last2-beam5" / "outputs.jsonl"
    whole = text.read_bytes()
    for number, damaged in enumerate((b"", b"\xff\n", whole[:-9], whole + b"more\n"), 7):
        text.write_bytes(damaged)
        capsys.readouterr()
        call(*words)
        assert "has changed since it was written, so it is made again" in capsys.readouterr().err
        assert len(translations.calls) == number and text.read_bytes() == whole
    # one that was stopped after the translation began has nothing to keep
    (fresh_run / "evaluation" / "test-last2-beam5" / "inputs.json").unlink()
    call(*words)
    assert len(translations.calls) == 11
    # the text is what is translated, whatever was binarised
    source = data / "text" / "raw" / "test.de"
    text = source.read_bytes()
    source.write_bytes(text.replace(b".", b"!", 1))
    try:
        call(*words)
    finally:
        source.write_bytes(text)
    assert len(translations.calls) == 12
    # a file of settings can change and keep its name
    for penalty in (0.4, 0.6, 0.6):
        (tmp_path / "own.yaml").write_text(f"generation: {{lenpen: {penalty}}}\n")
        call(*words, "--settings", tmp_path / "own.yaml")
    assert len(translations.calls) == 14


def test_results_never_go_where_a_link_leads(data, fresh_run, translations, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    inner = fresh_run / "evaluation" / "test-checkpoint_best-beam5"
    inner.parent.mkdir(exist_ok=True)
    for link in (inner, inner.parent):
        if link.is_dir():
            shutil.rmtree(link)
        link.symlink_to(elsewhere)
        with pytest.raises(ConfigurationError, match=f"^{link} is a link, which would redirect"):
            call(data, fresh_run)
        link.unlink()
    assert not list(elsewhere.iterdir()) and not translations.calls


def test_which_checkpoint(data, fresh_run, translations):
    call(data, fresh_run)
    call(data, fresh_run, "--best", 2)
    call(data, fresh_run, "--checkpoint", "checkpoint_last.pt")
    call(data, fresh_run, "--last", 1, "--by", "update")
    expected = ["checkpoint_best.pt", "best2.pt", "checkpoint_last.pt", "last1-update.pt"]
    assert translations.calls == expected
    folder = fresh_run / "evaluation" / "test-best2-beam5"
    scores = json.loads((folder / "scores.json").read_text("utf-8"))
    assert column(folder, "source") == [line.upper() for line in TARGET * 3]
    assert column(folder, "reference") == TARGET * 3
    for hypothesis, reference, of_text in zip(
        column(folder, "hypothesis"), TARGET * 3, column(folder, "scores")
    ):
        chrf = sacrebleu.metrics.CHRF(lowercase=True).sentence_score(hypothesis, [reference])
        bleu = sacrebleu.metrics.BLEU(lowercase=True, effective_order=True).sentence_score(
            hypothesis, [reference]
        )
        expected = {"chrF2": chrf.score, "BLEU": bleu.score}
        assert of_text == pytest.approx(expected, abs=1e-4)
    assert len(scores["checkpoints"]) == 2 and scores["sentences"] == 18
    assert scores["options"][:2] == ["--beam", "5"]
    assert all(name.startswith("checkpoint.best_loss") for name in scores["checkpoints"])
    assert set(scores["scores"]) == {"tokenised BLEU", "BLEU", "chrF2"}


def test_paired_bootstrap(data, fresh_run, tmp_path, translations, capsys):
    other = shutil.copytree(str(fresh_run), str(tmp_path / "other"))
    call(data, other)
    capsys.readouterr()
    translations.pieces = subwords(data)
    call(data, fresh_run, "--compare", other)
    output = capsys.readouterr().out
    assert re.search(
        r"  tokenised BLEU \+\d\d?\.\d\d, p = 0\.00\d\d, two-sided: 100\.00 \(100\.00", output
    )
    folder = fresh_run / "evaluation" / "test-checkpoint_best-beam5"
    found = json.loads((folder / "against-other.json").read_text("utf-8"))["scores"]
    for result in found.values():
        assert result["p"] < 0.05 and "bs:1000" in result["signature"]
        low, high = result["baseline_interval"]
        assert low < result["baseline"] < high < 100

    # a system does not differ from its equal
    call(data, other, "--compare", shutil.copytree(str(other), str(tmp_path / "equal")))
    assert capsys.readouterr().out.count(" +0.00, p = 1.0000, two-sided: ") == 3


def test_an_ensemble_is_a_system_of_its_own(data, fresh_run, tmp_path, translations, capsys):
    others = [shutil.copytree(str(fresh_run), str(tmp_path / name)) for name in "bc"]
    call(data, fresh_run, "--last", 2)
    words = [data, fresh_run, "--last", 2, "--ensemble", *others]
    call(*words)
    assert translations.calls == ["last2.pt", os.pathsep.join(["last2.pt"] * 3)]
    assert f"{fresh_run} + {others[0]} + {others[1]} (test-last2-beam5-ensemble3-" in (
        capsys.readouterr().out
    )
    for other in others:
        assert (Path(other) / "evaluation" / "last2.pt").is_file()
    (folder,) = (fresh_run / "evaluation").glob("test-last2-beam5-ensemble3-*")
    scores = json.loads((folder / "scores.json").read_text("utf-8"))
    assert scores["ensemble"] == dict.fromkeys(others, scores["checkpoints"])
    assert len(scores["checkpoints"]) == 2

    # kept, and compared with one of its own models
    call(*words, "--compare", fresh_run)
    assert len(translations.calls) == 2 and (folder / "against-run.json").is_file()
    # another model of it was trained on
    os.utime(str(max(Path(others[1]).glob("checkpoint_*_6.pt"))), ns=(1, 1))
    call(*words)
    assert len(translations.calls) == 3
    # another ensemble of as many replaces nothing
    call(*words[:-1])
    call(*words[:-2], others[1])
    assert translations.calls[3:] == [os.pathsep.join(["last2.pt"] * 2)] * 2
    call(*words[:-1])
    assert len(translations.calls) == 5


def test_an_ensemble_is_of_models_for_one_direction(data, fresh_run, tmp_path, translations):
    other = Path(shutil.copytree(str(fresh_run), str(tmp_path / "other")))
    change_task(other / "checkpoint_best.pt", source_lang="en", target_lang="de")
    with pytest.raises(ConfigurationError, match="two directions .*de-en, .*other.*en-de"):
        call(data, fresh_run, "--ensemble", other)
    change_task(other / "checkpoint_best.pt", _name="classification")
    with pytest.raises(ConfigurationError, match="--ensemble: .*other is a classifier, but only"):
        call(data, fresh_run, "--ensemble", other)
    assert translations.calls == []


def test_output_of_the_other_direction_is_not_kept(data, fresh_run, tmp_path, translations):
    """The folder that tells the direction may be there or not."""
    moved = reversed_copy(data, tmp_path / "moved")
    there = reversed_copy(data, tmp_path / "there")
    path = fresh_run / "checkpoint_best.pt"
    change_task(path, source_lang=None, target_lang=None, data=str(there))
    translations.directions[:] = [("en", "de")]
    call(moved, fresh_run)
    shutil.rmtree(str(there))
    shutil.copytree(str(data), str(there))
    translations.directions[:] = [("de", "en")]
    call(moved, fresh_run)
    assert len(translations.calls) == 2


def test_data_of_other_languages_are_refused(data, fresh_run, tmp_path, translations):
    path = fresh_run / "checkpoint_best.pt"
    change_task(path, source_lang="fr", target_lang="en", data=str(tmp_path / "gone"))
    with pytest.raises(ConfigurationError, match="translates fr to en, but .* for de and en: give"):
        call(data, fresh_run)
    assert translations.calls == []


def test_models_of_two_directions_are_not_compared(data, fresh_run, tmp_path, translations):
    other = Path(shutil.copytree(str(fresh_run), str(tmp_path / "other")))
    change_task(other / "checkpoint_best.pt", source_lang="en", target_lang="de")
    with pytest.raises(
        ConfigurationError, match="other and .* have different references: .*direction"
    ):
        call(data, fresh_run, "--compare", other)
    assert not translations.calls and not list(fresh_run.rglob("against-*.json"))


def test_real_translations_from_the_shell(data, fresh_run, tmp_path, run_generate, monkeypatch):
    """The tokens that are scored are those that fairseq-generate prints."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment["PATH"]
    words = [data, fresh_run, "--last", "2", "--split", "valid", "--cpu", "--", "--max-len-b", "5"]
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "plugin.sh"), "evaluate", *map(str, words)],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
    folder = fresh_run / "evaluation" / "valid-last2-beam5-max-len-b-5"
    averaged = fresh_run / "evaluation" / "last2.pt"
    how = ["--gen-subset", "valid", "--beam", 5, "--max-tokens", 4096, "--max-len-b", 5, "--cpu"]
    log = run_generate(data, "--path", averaged, *how).output
    hypotheses = column(folder, "tokens")
    printed = dict(re.findall(r"^H-(\d+)\t\S+\t(.*)$", log, flags=re.MULTILINE))
    pieces = [printed[str(number)] for number in range(6)]
    assert hypotheses == Translations(data, "valid", "en").text(pieces)["tokens"]
    assert not list((fresh_run / "evaluation").rglob("*.part"))

    # equal models agree: their ensemble translates like one of them
    equal = shutil.copytree(str(fresh_run), str(tmp_path / "equal"))
    assert call(*words[:6], "--ensemble", equal, *words[6:]) == 0
    (ensemble,) = folder.parent.glob(folder.name + "-ensemble2-*")
    assert column(ensemble, "tokens") == hypotheses


# --------------------------------------------------------------------------------------------------
# Mistakes


@pytest.mark.parametrize(
    "words, message",
    [
        (["{data}x", "{run}"], "DATA .*x: no such folder"),
        (["{data}", "{run}x"], "runx: no such folder; RUN is the --save-dir"),
        (["{data}", "{run}/checkpoint_last.pt"], "is a file, but RUN is a folder: .* --checkpoint"),
        (["{data}", "{run}", "--compare", "{run}x"], "runx: no such folder"),
        (["{data}", "{run}", "--ensemble", "{run}x"], "runx: no such folder"),
        (["{data}", "{run}", "--ensemble", "{empty}"], "empty has no checkpoint: give the --save"),
        (["{run}", "{data}"], r"DATA .*run has no dictionaries \(dict"),
        (["{data}", "{run}", "--last", "9"], r"--last 9: .* has 3 checkpoints of this kind"),
        (["{data}", "{empty}", "--last", "2"], r"has 0 .* one per epoch.*, or train longer"),
        (["{data}", "{run}", "--best", "3"], r"--best 3: .* has 2 checkpoints"),
        (["{data}", "{run}", "--checkpoint", "a.pt"], "a.pt is missing: .* checkpoint_best.pt"),
        (["{data}", "{empty}"], "checkpoint_best.pt is missing: .*no checkpoint: give the --save"),
        (["{data}", "{run}", "--split", "test1"], "--split test1: .*holds test, train, valid"),
        (["{data}", "{run}", "--beam", "0"], "--beam 0: must be from 1 to 1024"),
        (["{data}", "{run}", "--", "--beam", "9999"], "--beam 9999: must be from 1 to 1024"),
        (["{data}", "{run}", "--", "--path", "x"], "--path is not allowed after --"),
        (["{data}", "{run}", "--", "--user-dir", "x"], "--user-dir is not allowed after --"),
        (["{data}", "{run}", "--by", "update"], "--by update needs --last: add it"),
        (["{data}", "{run}", "--", "--tokenizer", "moses"], "--tokenizer is not allowed after --"),
        (["{data}", "{run}", "--", "--bpe=x"], "--bpe is not allowed after --"),
        (["{data}", "{run}", "--", "--score-reference"], "would not be of the model's"),
        (["{data}", "{run}", "--", "--prefix-size", "3"], "--prefix-size is not allowed after --"),
        (["{data}", "{run}", "--", "--quiet"], "--quiet is not allowed after --: the output would"),
        (["{data}", "{run}", "--", "-s", "en"], "-s is not allowed after --"),
        (["{data}", "{run}", "--", "--lenpenn", "1"], "fairseq-generate does not take .*--lenpenn"),
        (["{data}", "{run}", "--", "--lenpen=x"], "^--lenpen 'x': must be a number$"),
        (["{data}", "{run}", "--settings", "generate_cnndm"], "did you mean generate_cnn_dm"),
        (
            ["{data}", "{run}", "--settings", "xyz"],
            "xyz: no such file, .*recipes are .*transformer",
        ),
        (["{data}", "{run}", "--unicode"], "--unicode is for summaries, scored by ROUGE: remove"),
        (["{empty}", "{run}"], r"DATA .*empty has no dictionaries \(dict"),
        (["{data}", "{run}", "--ensemble", "{empty}/../run"], "--ensemble: .*run is named twice: "),
        (["{split}", "{run}"], "DATA .*lr:1: fairseq cannot read paths with ':'"),
        (["{data}", "{split}"], "RUN .*lr:1: fairseq cannot read paths with ':'"),
    ],
)
def test_mistakes(words, message, data, fresh_run, tmp_path, translations):
    places = {"empty": tmp_path / "empty", "split": tmp_path / "lr:1"}
    for place in places.values():
        place.mkdir()
    places.update(data=data, run=fresh_run)
    with pytest.raises(ConfigurationError, match=message):
        call(*[word.format(**places) for word in words])
    assert translations.calls == []


@pytest.mark.parametrize(
    "text, message",
    [
        ("common_eval:\n  path: other.pt\n", "--path is not allowed in --settings: this command"),
        ("generation:\n  prefix_size: 4\n", "--prefix-size is not allowed in --settings: the"),
    ],
)
def test_settings_do_not_replace_the_model(text, message, data, fresh_run, tmp_path, translations):
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        call(data, fresh_run, "--settings", tmp_path / "own.yaml")
    assert translations.calls == []


def test_comparisons_with_folders_of_one_name_are_all_kept(data, fresh_run, tmp_path, translations):
    """A folder beside the run keeps its name, others get a hash of their place."""
    others = [shutil.copytree(str(fresh_run), str(tmp_path / name / "other")) for name in "ab"]
    for other in [shutil.copytree(str(fresh_run), str(tmp_path / "other")), *others]:
        call(data, fresh_run, "--compare", other)
    (folder,) = {path.parent for path in fresh_run.rglob("against-*.json")}
    assert (folder / "against-other.json").is_file()
    found = [json.loads(path.read_text("utf-8")) for path in folder.glob("against-other-*.json")]
    assert sorted(each["baseline"].split()[0] for each in found) == sorted(others)


def test_incomplete_output_is_not_scored(data, fresh_run, translations):
    translations.pieces = ["a", "b"]
    with pytest.raises(ConfigurationError, match="the output has 2 of 18 texts: a score needs all"):
        call(data, fresh_run)
    assert not list((fresh_run / "evaluation").rglob("scores.json"))


def test_results_of_other_data_do_not_stay(
    data, prepare, fresh_run, tmp_path, monkeypatch, translations
):
    def stored(name):
        return json.loads((folder / name).read_text("utf-8"))

    folder = fresh_run / "evaluation" / "test-checkpoint_best-beam5"
    call(data, fresh_run, "--compare", shutil.copytree(fresh_run, tmp_path / "other"))
    assert stored("scores.json")["data"] == stored("against-other.json")["data"] == str(data)
    other = prepare("--lowercase", "--joined-dictionary")
    call(other, fresh_run)
    assert stored("scores.json")["data"] == str(other)
    assert not (folder / "against-other.json").exists()
    monkeypatch.setattr(Translations, "predict", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        call(data, fresh_run)
    assert not list(folder.iterdir())


def test_one_evaluation_at_a_time(data, fresh_run, translations, monkeypatch):
    monkeypatch.setattr(files, "PATIENCE", 0)
    with files.alone_in(fresh_run / "evaluation", "evaluation"):
        with pytest.raises(ConfigurationError, match="another evaluation is running"):
            call(data, fresh_run)


def test_examples_and_a_goal(data, fresh_run, translations, capsys):
    translations.pieces = subwords(data)
    assert call(data, fresh_run, "--examples", 2, "--at-least", 99) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"  source      {TARGET[0].upper()}"
    assert lines[1] == f"  reference   {TARGET[0]}" and lines[2].startswith("  hypothesis  a man")
    assert sum("  source" in line for line in lines) == 2
    with pytest.raises(ConfigurationError, match="BLEU 100.00 is below --at-least 101"):
        call(data, fresh_run, "--at-least", 101)
    with pytest.raises(ConfigurationError, match="^--at-least nan: must be at least 0$"):
        call(data, fresh_run, "--at-least", "nan")


# --- summaries ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> Path:
    """Prepared documents, one of them longer than any recipe reads."""
    folder = tmp_path_factory.mktemp("documents")
    words = "ant bee cow dog eel fox".split()
    for split, lengths in (("train", [20, 30, 6000, 12] * 5), ("valid", [9, 14]), ("test", [9, 7])):
        for side, longest in (("source", 10000), ("target", 8)):
            lines = [
                " ".join(words[(i * i + n) % 6] for i in range(min(length, longest)))
                for n, length in enumerate(lengths)
            ]
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    prepare_summarization.main(
        [str(folder / "data"), "--vocab-size", "22", "--workers", "1"]
        + [word for s in ("train", "valid", "test") for word in ("--" + s, str(folder / s))]
    )
    return folder / "data"


def test_summaries_are_trained_on_a_cpu_and_scored(
    documents, run_process, tmp_path, capsys, monkeypatch
):
    """The reduced setting takes documents that are longer than a batch, as it cuts them."""
    run = tmp_path / "run"
    words = ["--save-dir", run, "--settings", "reduced_cpu", "--cpu", "--", "--max-update", 2]
    words += ["--decoder-layers", 1, "--num-workers", 0, "--save-interval-updates", 2]
    recipe = ROOT / "examples" / "summarization" / "fastformer_tc_cnn_dm.sh"
    path = {"PATH": str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]}
    trained = run_process(["bash", recipe, documents, *words], env=path, cwd=tmp_path)
    assert trained.returncode == 0, trained.stdout
    log = (run / "train.log").read_text()
    assert re.search(r"train: 5 of 20 documents are longer than 128 positions and cut", log)

    words = ["--settings", "generate_headlines", "--cpu", "--examples", 1, "--", "--num-workers", 0]
    assert call(documents, run, *words) == 0
    scored = capsys.readouterr().out
    assert re.search(r"  ROUGE-Lsum = \d+\.\d\d \[.*stem:porter", scored)
    assert "  hypothesis  " in scored
    name = "test-checkpoint_best-beam5-generate_headlines"
    folder = run / "evaluation" / name
    assert (
        column(folder, "reference")
        == (documents / "text" / "raw" / "test.target").read_text().splitlines()
    )
    scores = json.loads((folder / "scores.json").read_text("utf-8"))["scores"]
    assert list(scores) == ["ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum"]


def test_paired_bootstrap_of_rouge(documents):
    test = Summaries(documents, "test")
    references = ["a b c d", "e f g h", "i j k l", "m n o p"] * 8
    test.references, test.total = references, len(references)
    good, bad = [line + " x" for line in references], [line[:3] for line in references]
    found = test.compare({"hypothesis": good}, {"hypothesis": bad})["ROUGE-1"]
    assert found["score"] == pytest.approx(100 * 8 / 9)
    assert found["baseline"] == pytest.approx(100 * 2 / 3)
    assert found["difference"] == pytest.approx(found["score"] - found["baseline"])
    assert found["p"] == pytest.approx(1 / 1001)
    assert "stem:porter" in found["signature"] and "bs:1000" in found["signature"]
