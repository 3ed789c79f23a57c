"""distill: what a teacher writes, as data for a student."""

import json
import os
import re
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from sacrebleu.metrics import BLEU

from fairseq_plugins import Summarizer, Translator
from fairseq_plugins.cli import distill
from fairseq_plugins.compat.checkpoints import WORDS
from fairseq_plugins.data.prepared_folder import Prepared, digests_of_words
from fairseq_plugins.distill import distillation, teachers
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import averages
from fairseq_plugins.files import read_lines
from fairseq_plugins.search.text import sentences_of
from tests import tiny_runs
from tests.conftest import change_task

LINES = 24
SPECIAL = {"": 3, " \u00a0 ": 8, "\u200b": 9, "der Hund " * 700: 14}  # lines of train, from 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory, run_train):
    """Data, runs and an export: the teachers of these tests."""
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install '.[test]'")
    folder = tmp_path_factory.mktemp("kept")
    tiny_runs.translation(folder / "translation_bpe", run_train, "bpe", 40)
    tiny_runs.summarization(folder / "summarization", run_train)
    return folder


def lines_of(path):
    return list(read_lines(path))


def shorten(data, folder):
    """A copy of a prepared folder with the first lines of its training text."""
    shutil.copytree(data, folder)
    for path in folder.glob("text/*/train.*"):
        path.write_text("".join(line + "\n" for line in lines_of(path)[:LINES]), "utf-8")
    return folder


@pytest.fixture(scope="module")
def small(kept, tmp_path_factory):
    """24 pairs, German to English, in BPE on Moses tokens."""
    return shorten(kept / "translation_bpe/data", tmp_path_factory.mktemp("small") / "data")


@pytest.fixture(scope="module")
def run(kept):
    return kept / "translation_bpe/run"


@pytest.fixture(scope="module")
def reverse(run, tmp_path_factory):
    """A checkpoint that says that it translates English to German."""
    path = tmp_path_factory.mktemp("reverse") / "checkpoint_best.pt"
    change_task(run / "checkpoint_last.pt", path, source_lang="en", target_lang="de")
    return path


@pytest.fixture(scope="module")
def translator(run, small):
    return Translator(run, small, cpu=True)


def distilled(data, *words):
    """The new folder; without --processes, one does all."""
    words = [data, *words, "--cpu", *([] if "--processes" in words else ["--processes", 1])]
    assert distill.main([str(word) for word in words]) == 0
    return Path(words[words.index("--out") + 1])


def kept_lines(folder):
    return [line.split("\t") for line in lines_of(folder / "text/kept.tsv")]


def content(folder):
    """All files that a finished folder has for its users."""
    names = ("*.bin", "*.idx", "dict.*", "bpe.codes", "text/raw/*", "text/*.tsv", "report.txt")
    paths = [path for name in names for path in folder.glob(name) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def whole(kept, run, tmp_path_factory):
    """150 pairs, translated in several groups."""
    out = tmp_path_factory.mktemp("whole") / "new"
    with mock.patch.object(teachers, "LINES", 40):
        return distilled(kept / "translation_bpe/data", run, "--out", out)


def test_train_has_what_the_teacher_writes_and_nothing_else_changes(kept, run, whole):
    data = kept / "translation_bpe/data"
    german = lines_of(data / "text/raw/train.de")
    expected = Translator(run, data, cpu=True).translate(german)
    assert lines_of(whole / "text/raw/train.en") == expected
    assert expected != lines_of(data / "text/raw/train.en"), "the teacher is perfect: no test"
    encode = Prepared(data).processor("de", "en").encode_target
    pieces = tiny_runs.binarised(whole / "train.de-en.en")
    assert pieces == [encode(line) for line in expected] and len(set(pieces)) > 50
    ours, theirs = content(whole), content(data)
    changed = {name for name in theirs if ours[name] != theirs[name]}
    assert changed == {
        "report.txt", "train.de-en.en.bin", "train.de-en.en.idx", "text/raw/train.en"
    }  # fmt: skip
    assert set(ours) - set(theirs) == {"text/kept.tsv"}
    assert digests_of_words(whole) == digests_of_words(data)
    assert kept_lines(whole) == [["teacher", str(n), "1"] for n in range(1, 151)]
    assert not (whole / "work").exists()


def test_several_processes_write_the_same(kept, run, whole, tmp_path, monkeypatch):
    """They start anew: a fork would wait forever for threads of this process."""
    monkeypatch.setattr(teachers, "LINES", 40)
    torch.set_num_threads(2)
    torch.ones(1 << 20).add(1)
    words = (run, "--processes", 2, "--out", tmp_path / "new")
    assert content(distilled(kept / "translation_bpe/data", *words)) == content(whole)


def test_the_report_counts_as_by_hand(kept, run, whole, capsys):
    data = kept / "translation_bpe/data"
    report = (whole / "report.txt").read_text("utf-8").split("\n")
    translator = Translator(run, data, cpu=True)
    for split in ("train", "valid"):
        found = translator.translate(lines_of(data / f"text/raw/{split}.de"))
        references = lines_of(data / f"text/raw/{split}.en")
        bleu = BLEU(tokenize="13a", smooth_method="exp")
        score = bleu.corpus_score(found, [references])
        words = [sum(len(bleu.tokenizer(x).split()) for x in side) for side in (found, references)]
        numbers = [len(found), f"{score.score:.2f}", *words, 0, 0, 0]
        *_, row = [line.split() for line in report if re.match(rf"{split} +\d", line)]
        assert row[1:] == [str(number) for number in numbers]
    before = content(whole)
    capsys.readouterr()
    distilled(data, run, "--out", whole)  # again: it is finished
    said = capsys.readouterr()
    assert content(whole) == before and not said.err and "\n".join(report) in said.out
    with pytest.raises(ConfigurationError, match="was prepared with other settings .search was "):
        distilled(data, run, "--beam", 2, "--out", whole)


def test_an_exported_teacher_writes_the_same(kept, run, small, tmp_path):
    pytest.importorskip("onnxruntime")
    words = ["--keep", "nearest", "--beam", 4, "--nbest", 3]
    torch_new = distilled(small, run, *words, "--out", tmp_path / "torch")
    new = distilled(small, kept / "translation_bpe/export", *words, "--out", tmp_path / "onnx")
    ours, theirs = content(new), content(torch_new)
    assert {name for name in ours if ours[name] != theirs[name]} == {"report.txt"}
    with pytest.raises(ConfigurationError, match="was prepared with other settings .search was "):
        distilled(small, run, *words[:-1], 2, "--out", tmp_path / "torch")


def test_the_nearest_of_the_best_is_kept(run, small, translator, tmp_path):
    new = distilled(small, run, "--keep", "nearest", "--nbest", 4, "--out", tmp_path / "new")
    german, english = (lines_of(small / f"text/raw/train.{side}") for side in ("de", "en"))
    expected, ranks = [], []
    for outputs, reference in zip(translator.candidates(german, 4), english):
        texts = [translator.processor.decode(output.pieces) for output in outputs]
        assert len(texts) == 4
        scores = [BLEU(effective_order=True).sentence_score(t, [reference]).score for t in texts]
        ranks.append(scores.index(max(scores)) + 1)
        expected.append(texts[ranks[-1] - 1])
    assert len(set(ranks)) > 1, "always the same rank: nothing is tested"
    assert lines_of(new / "text/raw/train.en") == expected
    assert [int(rank) for _, _, rank in kept_lines(new)] == ranks
    score = BLEU().corpus_score(expected, [english]).score
    report = (new / "report.txt").read_text("utf-8")
    assert f"BLEU of these {score:.2f}" in report and f"1: {ranks.count(1)}, " in report


def test_the_first_of_equally_near_texts_without_problems_is_kept(small):
    """What is told of the best text, and of the kept one, or of the reference if none is kept."""
    judge = distillation.Judge(Prepared(small), "en")
    texts = [
        ["the dog runs here quickly", teachers.CUT_OFF],
        ["a cat sleeps today.", ""],
        ["the dog sleeps now.", ""],
        ["the dog sleeps now.", ""],
    ]
    reference = "the dog sleeps today."
    rank, kept, problem, *counts = judge((reference, texts))
    assert (rank, kept, problem) == (3, "the dog sleeps now.", teachers.CUT_OFF)
    for found, text in zip(counts, ("the dog runs here quickly", "the dog sleeps now.")):
        score = BLEU().corpus_score([text], [[reference]])
        assert distillation.bleu_from(found) == pytest.approx(score.score) and score.score > 0
    rank, kept, problem, best, same = judge((reference, [["", teachers.EMPTY]]))
    assert (rank, kept, problem) == (0, reference, teachers.EMPTY)
    assert (best[:2], same[:2]) == ([0, 5], [5, 5])


def test_summaries_are_compared_without_boundaries_and_by_characters(kept, tmp_path):
    data = kept / "summarization/data"
    judge = distillation.Judge(Prepared(data), "target")
    assert judge(("It fell. <q> It rose.", [["It fell. <q> It rose.", ""]]))[4][:2] == [6, 6]
    data = shutil.copytree(data, tmp_path / "data")
    (data / "text/raw/valid.target").write_text("雨が降った。\n", "utf-8")
    judge = distillation.Judge(Prepared(data), "target")
    rank, *_, counts = judge(("雨が降った。", [["雪が降る。", ""], ["雨が降る。", ""]]))
    assert (rank, counts[:2]) == (2, [5, 6])


@pytest.fixture
def odd(small, tmp_path):
    """A folder in whose train some sources have nothing to read, and one is very long."""
    folder = shorten(small, tmp_path / "odd")
    path = folder / "text/raw/train.de"
    lines = lines_of(path)
    for line, place in SPECIAL.items():
        lines[place] = line
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return folder


def test_odd_lines_shift_nothing(run, small, odd, translator, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fairseq_plugins.system.progress.SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(teachers, "LINES", 7)
    new = distilled(odd, run, "--out", tmp_path / "new")
    assert f"written: {LINES + 12} of {LINES + 12} lines" in capsys.readouterr().err
    references = lines_of(small / "text/raw/train.en")
    german = lines_of(small / "text/raw/train.de")
    german[14] = "der Hund " * 700
    expected = translator.translate(german)
    blank = [place for line, place in SPECIAL.items() if not line.strip(" \u00a0\u200b")]
    for place in blank:
        expected[place] = references[place]
    assert expected[14].count("The girl") > 2, "not translated in parts: nothing is tested"
    assert lines_of(new / "text/raw/train.en") == expected
    assert [number for number, row in enumerate(kept_lines(new)) if row[0] == "original"] == blank
    sizes = [len(tiny_runs.binarised(new / f"train.de-en.{side}")) for side in ("de", "en")]
    assert sizes == [LINES] * 2
    assert "which are original: 3" in (new / "report.txt").read_text("utf-8")


@pytest.fixture(scope="module")
def everything(run, reverse, small, tmp_path_factory):
    """The words of a distillation with all kinds of pairs, and its result."""
    folder = tmp_path_factory.mktemp("everything")
    more = ["Der Hund schläft heute.", "", "\u200b", "die Katze läuft nie!", "der Hund " * 100]
    (folder / "more.de").write_text("".join(line + "\n" for line in more), "utf-8")
    english = ["the dog sleeps never!", "  ", "The girl runs today."]
    (folder / "more.en").write_text("".join(line + "\n" for line in english), "utf-8")
    words = [run, "--keep", "both", "--extra", folder / "more.de"]
    words += ["--back-translate", folder / "more.en", "--reverse", reverse]
    return words, distilled(small, *words, "--out", folder / "new")


def test_all_kinds_of_pairs_stand_in_order(everything, small, translator, reverse):
    words, new = everything
    german, english = (lines_of(small / f"text/raw/train.{side}") for side in ("de", "en"))
    back = Translator(reverse, small, cpu=True)
    more = ["Der Hund schläft heute.", "die Katze läuft nie!"]
    target = ["the dog sleeps never!", "The girl runs today."]
    expected = [
        *zip(german, english),
        *zip(german, translator.translate(german)),
        *zip(more, translator.translate(more)),
        *zip(back.translate(target), target),
    ]
    found = [lines_of(new / f"text/raw/train.{side}") for side in ("de", "en")]
    assert list(zip(*found)) == expected
    assert [row[:2] for row in kept_lines(new)] == [
        *(["original", str(n)] for n in range(1, LINES + 1)),
        *(["teacher", str(n)] for n in range(1, LINES + 1)),
        *(["extra", "1"], ["extra", "4"], ["back-translated", "1"], ["back-translated", "3"]),
    ]
    tag = "madeupword0000"
    pieces = tiny_runs.binarised(new / "train.de-en.de")
    assert [line.startswith(tag + " ") for line in pieces] == [False] * (2 * LINES + 2) + [True] * 2
    assert not any(tag in line for line in tiny_runs.binarised(new / "train.de-en.en"))
    report = (new / "report.txt").read_text("utf-8")
    assert "Train has 52 pairs" in report and f"begin with {tag}" in report
    assert "Filtered out: 4 pairs, which removed.txt" in report and "3  empty side" in report
    assert "1  more than 175 words" in report
    with pytest.raises(
        ConfigurationError, match="was prepared with other settings .tag was .madeup"
    ):
        distilled(small, *words, "--no-tag", "--out", new)


def test_what_was_written_is_kept_when_it_is_killed(run, whole, kept, tmp_path, monkeypatch):
    """Also a half-written line; other settings use nothing of it. Names need not be UTF-8."""
    data = shutil.copytree(kept / "translation_bpe/data", tmp_path / os.fsdecode(b"d\xfcta"))
    monkeypatch.setattr(teachers, "LINES", 40)
    written, groups = teachers._written, []

    def dies(model, count, group):
        groups.append(len(group.lines))
        if len(groups) == 3:
            raise KeyboardInterrupt
        return written(model, count, group)

    monkeypatch.setattr(teachers, "_written", dies)
    words = [data, run, "--out", data / "new"]
    with pytest.raises(KeyboardInterrupt):
        distilled(*words)
    (path,) = (data / "new.part/work/written").glob("*.part")
    with open(path, "ab") as file:
        file.write(b'[["half')  # which the journal does not have
    distilled(*words)
    assert groups == [40, 40, 40, 40, 40, 2]
    expected, found = content(whole), content(data / "new")
    assert {name for name in expected if expected[name] != found[name]} <= {"report.txt"}
    distilled(*words)  # finished
    assert len(groups) == 6


def test_a_student_trains_on_all_of_it(everything, small, run_train, train_args, tmp_path):
    _, new = everything
    assert digests_of_words(new) == digests_of_words(small)
    words = [*train_args, "--share-all-embeddings", "--save-dir", tmp_path, "--max-update", 2]
    words += ["--task", "translation_sampled", "--bpe-dropout", 0.1]  # which cuts words anew
    assert f"de-en {2 * LINES + 4} examples" in run_train(new, *words).output


def test_translations_have_length_limits_too(run, small, tmp_path):
    new = distilled(small, run, "--max-len", 2, "--out", tmp_path / "new")
    assert {row[0] for row in kept_lines(new)} == {"original"}
    assert re.search(rf"train +{LINES} .* {LINES} +0\n", (new / "report.txt").read_text("utf-8"))


def test_a_teacher_that_copies_summarizes(kept, tmp_path):
    data = shorten(kept / "summarization/data", tmp_path / "data")
    run = kept / "summarization/run"
    path = data / "text/raw/train.source"
    unknown = {4: "Ž", 9: "Ž Ž Ž Ž"}  # which the dictionary lacks
    lines = [unknown.get(number, line) for number, line in enumerate(lines_of(path))]
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    summarizer = Summarizer(run, data, cpu=True)
    documents = lines_of(data / "text/raw/train.source")
    expected = [" <q> ".join(found.summary) for found in summarizer.summarize(documents)]
    assert all("Ž" in expected[number] for number in unknown), "not copied: nothing is tested"
    new = distilled(data, run, "--out", tmp_path / "new")
    assert lines_of(new / "text/raw/train.target") == expected
    pieces = tiny_runs.binarised(new / "train.source-target.target")
    assert all(
        line.split().count("<q>") == text.count("<q>") for line, text in zip(pieces, expected)
    )
    for number, (line, text) in enumerate(zip(pieces, expected, strict=True)):
        sentences = [summarizer.processor.decode(p) for p in sentences_of(line)]
        assert number in unknown or sentences == text.split(" <q> ")


def test_a_teacher_may_have_other_subwords(small, tmp_path):
    pytest.importorskip("onnxruntime")
    new = distilled(small, "tatoeba-de-en", "--out", tmp_path / "new")
    lines = [
        line for split in ("train", "valid") for line in lines_of(small / f"text/raw/{split}.de")
    ]
    texts = Translator("tatoeba-de-en").translate(lines)[:LINES]  # 8 bits round by batch
    assert lines_of(new / "text/raw/train.en") == texts
    encode = Prepared(small).processor("de", "en").encode_target
    for found, text in zip(tiny_runs.binarised(new / "train.de-en.en"), texts, strict=True):
        pairs = list(zip(found.split(), encode(text).split(), strict=True))
        assert all(piece in ("<unk>", expected) for piece, expected in pairs)


def test_a_teacher_finds_its_data_from_another_working_directory(kept, run, small, tmp_path):
    data = shutil.copytree(kept / "translation_bpe/data", tmp_path / "project/data/bpe")
    state = averages.load(run / "checkpoint_last.pt")
    state["cfg"]["task"]["data"], state[WORDS] = "data/bpe", digests_of_words(data)
    (tmp_path / "project/run").mkdir()
    teacher = tmp_path / "project/run/checkpoint_best.pt"
    torch.save(state, teacher)
    other = shutil.copytree(small, tmp_path / "other")
    with open(other / "dict.de.txt", "a", encoding="utf-8") as words:
        words.write("another 1\n")
    new = distilled(other, teacher, "--out", tmp_path / "new")
    german = lines_of(small / "text/raw/train.de")
    assert lines_of(new / "text/raw/train.en") == Translator(teacher, cpu=True).translate(german)


def test_averages_and_ensembles_teach(run, reverse, small, tmp_path):
    other = averages.load(run / "checkpoint_last.pt")
    generator = torch.Generator().manual_seed(1)
    for value in other["model"].values():
        if value.is_floating_point():
            value += 0.1 * value.abs().mean() * torch.randn(value.shape, generator=generator)
    (tmp_path / "run").mkdir()
    shutil.copy(run / "checkpoint_last.pt", tmp_path / "run/checkpoint1.pt")
    torch.save(other, tmp_path / "run/checkpoint2.pt")
    german = lines_of(small / "text/raw/train.de")

    new = distilled(small, tmp_path / "run", "--last", 2, "--out", tmp_path / "average")
    average = Translator(tmp_path / "run/evaluation/last2.pt", small, cpu=True)
    assert lines_of(new / "text/raw/train.en") == average.translate(german)
    places = [run, tmp_path / "run/checkpoint2.pt"]
    new = distilled(small, *places, "--out", tmp_path / "ensemble")
    ensemble = Translator(places, small, cpu=True)
    assert lines_of(new / "text/raw/train.en") == ensemble.translate(german)


def with_settings(folder, copy, **settings):
    """A copy of a prepared folder or an export that says that it was prepared in another way."""
    shutil.copytree(folder, copy)
    record = json.loads((copy / "preparation.json").read_text())
    record["settings"].update(settings)
    (copy / "preparation.json").write_text(json.dumps(record))
    return copy


def test_a_student_of_data_with_terms_reads_words_in_their_place(run, small, tmp_path):
    """No symbol stands for a term in distilled text: a student would never have read one."""
    new = distilled(
        with_settings(small, tmp_path / "data", terms="0" * 64), run, "--out", tmp_path / "new"
    )
    (tmp_path / "terms.tsv").write_text("Der Hund\tthe bear\n")
    student = Translator(run, new, cpu=True, terms=tmp_path / "terms.tsv")
    source = "Der Hund schläft heute."
    assert student.processor.encode(source) == Prepared(small).processor("de", "en").encode(source)


def test_what_cannot_work_is_told_in_one_line(kept, run, reverse, small, tmp_path):
    (tmp_path / "dict.de.txt").write_text("a 2\nb 1\n", "utf-8")
    with pytest.raises(ConfigurationError, match="dict.de.txt has no unused word for the tag"):
        distillation.find_tag(tmp_path, "de")
    bidirectional = with_settings(small, tmp_path / "bidirectional", bidirectional=True)
    labels = with_settings(small, tmp_path / "labels", task="encoder_classification")
    gone = shorten(small, tmp_path / "gone")
    (gone / "text/raw/train.en").unlink()
    other = averages.load(reverse)
    other[WORDS] = {"dict.de.txt": "0"}
    torch.save(other, tmp_path / "other.pt")
    export, best = kept / "translation_bpe/export", run / "checkpoint_last.pt"
    lower = with_settings(export, tmp_path / "lower", lowercase=True)
    tokenised = with_settings(export, tmp_path / "tokenised", tokenizer="none")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "evaluation").symlink_to(tmp_path)
    text = small / "text/raw/valid.en"
    back = ["--back-translate", text, "--reverse"]
    for words, message in (
        ([small, export, run], "an exported model cannot join an ensemble"),
        ([small, export, "--last", 2], "--last is for checkpoints, but TEACHER"),
        ([small, best, "--last", 2], "--last 2 is for runs: TEACHER .* is not a folder"),
        ([small, linked, "--last", 2], "linked/evaluation is a link, which would redirect files"),
        ([small, run, "--last", 5], "--last 5: .* has 0 checkpoints"),
        ([small, kept / "summarization/run"], "was not trained with the dictionaries in"),
        ([small, tmp_path / "other.pt"], "TEACHER .* has other dictionaries than .* is not there"),
        ([small, run, "--nbest", 3], "--nbest 3 needs --keep nearest"),
        ([small, run, "--keep", "nearest", "--nbest", 6], "--nbest 6 texts of --beam 5"),
        ([small, run, "--min-len", 5, "--max-len", 2], "--min-len 5 is above --max-len 2"),
        ([small, run, "--back-translate", text], "--back-translate .* needs --reverse: add it"),
        ([small, run, "--reverse", run], "--reverse .* needs --back-translate: add it, or remove"),
        ([small, run, "--no-tag"], "--no-tag needs --back-translate"),
        ([text, run], "DATA .* is a file: give the prepared folder"),
        ([small, run, "--out", small], "was prepared with other settings .distilled was null"),
        ([small, run, *back, run], "must be of opposite directions"),
        ([small, export, "--int8"], "--int8 is for checkpoints, but TEACHER .* remove it"),
        ([small, run, *back, export, "--fp16"], "--fp16 is for checkpoints, but --reverse .*"),
        ([small, run, *back, lower], "--reverse .* writes lower case only, but .* has upper case"),
        ([small, tokenised], "TEACHER .* was tokenised before preparation, but not both"),
        ([labels, run], "for encoder_classification: distill is for translation and summariz"),
        ([bidirectional, run], "has both directions"),
        ([gone, run], "train.en cannot be read: No such file"),
        ([small, tmp_path / "none"], "TEACHER .* does not exist"),
    ):
        with pytest.raises(ConfigurationError, match=message) as error:
            distilled(*words, *([] if "--out" in words else ["--out", tmp_path / "new"]))
        assert "\n" not in str(error.value)
        assert not (tmp_path / "new").exists()
