"""Options of the commands imported here reach what the command calls: an ignored one fails.

Many change nothing that another test sees: batches, processes, threads, a GPU that is not there.
Those of commands in `HELD_ELSEWHERE` have other tests, and so have those of the laboratory.
"""

import argparse
from pathlib import Path
from unittest import mock

import pytest

from fairseq_plugins.commands import (
    FOLDERS,
    average,
    classify,
    commands,
    distill,
    evaluate,
    export,
    prepare_classification,
    prepare_cnn_dm,
    prepare_iwslt14,
    prepare_summarization,
    prepare_translation,
    summarize,
    translate,
)
from fairseq_plugins.data import cnn_dm, iwslt14
from fairseq_plugins.data.classification import read_texts
from fairseq_plugins.data.pretraining import Pretraining
from fairseq_plugins.data.translation import read_text
from fairseq_plugins.evaluate import request, teachers
from fairseq_plugins.files import digest
from fairseq_plugins.preparation.distillation import DistillationRequest
from fairseq_plugins.training import recipes

PLUGIN, STEP = "fairseq_plugins.", object()
HELD_ELSEWHERE = {
    "prepare-bidirectional": "preparation/test_bidirectional.py",
    "train": "training/test_planning.py",
}
COVERED = [
    average, classify, distill, evaluate, export, prepare_classification, prepare_cnn_dm,
    prepare_iwslt14, prepare_summarization, prepare_translation, summarize, translate,
]  # fmt: skip


def test_each_command_of_the_product_is_here_or_held_elsewhere():
    product = [name for name, path in commands().items() if path.parent == FOLDERS[0]]
    here = [module.__name__.rpartition(".")[2].replace("_", "-") for module in COVERED]
    assert sorted(product) == sorted([*here, *HELD_ELSEWHERE])
    tests = Path(__file__).parent.parent
    assert all((tests / path).is_file() for path in HELD_ELSEWHERE.values())


class Reached(Exception):
    """Ends a command where it calls what the test looks at."""


@pytest.fixture
def calls_of(monkeypatch):
    """calls_of(main, words, *places, elsewhere="...") -> the calls of each place.

    The command ends at the last place. All its options must be given, but those named `elsewhere`,
    which other tests hold.
    """

    def run(main, words, *places, elsewhere=""):
        given, parse = [], argparse.ArgumentParser.parse_args

        def parse_args(parser, *args, **kwargs):
            given.append((parser, parse(parser, *args, **kwargs)))
            return given[-1][1]

        monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
        made = [mock.MagicMock() for _ in places]
        made[-1].side_effect = Reached
        for place, function in zip(places, made):
            monkeypatch.setattr(PLUGIN + place, function)
        with pytest.raises(Reached):
            main([str(word) for word in words])
        parser, args = given[0]
        unset = {
            action.dest
            for action in parser._actions
            if action.dest != "help" and getattr(args, action.dest) == action.default
        }
        assert unset == set(elsewhere.split())
        return [function.call_args_list for function in made]

    return run


SEARCH = """--cpu --fp16 --int8 --max-tokens 70 --beam 6 --lenpen 0.5 --min-len 3
    --no-repeat-ngram-size 4""".split()


@pytest.mark.parametrize(
    "main, engine, more, options, elsewhere",
    [
        (translate.main, "translator", ["--nbest", 2, "--json"], {"nbest": 2}, "prefixes"),
        (summarize.main, "summarizer", ["--nbest", 2, "--json"], {"nbest": 2}, "documents"),
    ],
)
def test_translate_and_summarize(main, engine, more, options, elsewhere, calls_of):
    words = ["--model", "a", "b", "--data", "DATA", "--threads", 2, *SEARCH, *more]
    words += ["--sampling", "--sampling-topk", 9, "--temperature", 0.7, "--seed", 8]
    elsewhere += " output buffer processes max_len"
    words += ["--input", __file__]
    ((opened,),) = calls_of(main, words, f"{engine}.open_engine", elsewhere=elsewhere)
    expected = {
        "threads": 2, "cpu": True, "fp16": True, "int8": True,
        "max_tokens": 70, "beam": 6, "lenpen": 0.5, "min_len": 3, "no_repeat_ngram": 4,
        "sampling": True, "sampling_topk": 9, "temperature": 0.7, "seed": 8,
    }  # fmt: skip
    assert opened == mock.call(["a", "b"], Path("DATA"), **expected, **options)


def test_classify(calls_of):
    words = ["--model", "run", "--data", "DATA", "--cpu", "--max-tokens", 70, "--threads", 2]
    words += ["--input", __file__]
    ((made,),) = calls_of(
        classify.main, words, "commands.classify.Classifier", elsewhere="output buffer processes"
    )
    options = {"data": Path("DATA"), "cpu": True, "max_tokens": 70, "threads": 2}
    assert made == mock.call(Path("run"), **options)


def test_distill(calls_of):
    words = ["DATA", "A", "B", "--out", "NEW", "--last", 4, "--keep", "nearest", "--nbest", 3]
    words += ["--extra", "X", "--back-translate", "Y", "--reverse", "R", "--no-tag", *SEARCH]
    words += ["--max-len", 40, "--processes", 2]
    places = "evaluate.teachers.Teachers", "preparation.distillation.distill"
    made, (done,) = calls_of(distill.main, words, *places)
    asked, out, *_, workers = done.args
    search = teachers.Search(
        beam=6, lenpen=0.5, max_tokens=70, cpu=True, fp16=True, int8=True, min_length=3,
        max_length=40, no_repeat_ngram=4,
    )  # fmt: skip
    assert made == [
        mock.call(names, Path("DATA"), 4, search, 2, option)
        for names, option in (([Path("A"), Path("B")], "TEACHER"), ([Path("R")], "--reverse"))
    ]
    assert asked == DistillationRequest(Path("DATA"), "nearest", 3, Path("X"), Path("Y"), tag=False)
    assert (out, workers) == (Path("NEW"), 2)


@pytest.mark.parametrize(
    "chosen, unset",
    [
        ({"last": 3, "by": "update"}, "best checkpoint"),
        ({"best": 3}, "last checkpoint by"),
        ({"checkpoint": "checkpoint1.pt"}, "last best by"),
    ],
)
def test_evaluate(chosen, unset, calls_of):
    words = ["DATA", "RUN", "--split", "valid", "--settings", "generate_cnn_dm", "--beam", 6]
    words += ["--max-tokens", 70, "--ensemble", "B", "C", "--unicode", "--cpu", "--threads", 2]
    words += [word for name, value in chosen.items() for word in ("--" + name, value)]
    ((opened,),) = calls_of(
        evaluate.main,
        [*words, "--", "--lenpen", "2"],
        "evaluate.evaluate.open_request",
        elsewhere=unset + " compare examples at_least",
    )
    assert opened == mock.call(
        request.EvaluationRequest(
            Path("DATA"),
            Path("RUN"),
            "valid",
            settings=[recipes.find("generate_cnn_dm")],
            words=["--max-tokens", "70", "--beam", "6", "--lenpen", "2"],
            cpu=True,
            unicode=True,
            threads=2,
            ensemble=[Path("B"), Path("C")],
            **chosen,
        )  # fmt: skip
    )


@pytest.mark.parametrize(
    "words, expected, unset",
    [
        (["--last", 3, "--by", "update"], (3, None, "update"), "best"),
        (["--best", 3], (None, 3, None), "last by"),
    ],
)
def test_average(words, expected, unset, calls_of):
    words = ["--inputs", "RUN", "--output", "average.pt", *words]
    ((chosen,),) = calls_of(average.main, words, "evaluate.averages.choose", elsewhere=unset)
    assert chosen == mock.call([Path("RUN")], *expected)


def test_export(calls_of):
    words = ["RUN", "--out", "OUT", "--data", "DATA", "--int8"]
    more = ["--compare", "valid", "--licence", "MIT"]
    ((made,),) = calls_of(export.main, [*words, *more], "export.export", elsewhere="format")
    paths = Path("RUN"), Path("OUT"), Path("DATA")
    assert made == mock.call(*paths, True, "MIT", "valid")
    ((made,),) = calls_of(
        export.main, [*words, "--format", "ctranslate2"], "export.export_to_ctranslate2",
        elsewhere="compare licence",
    )  # fmt: skip
    assert made == mock.call(*paths, True)


@pytest.fixture
def prepared(calls_of, monkeypatch, tmp_path):
    """prepared(module, words, elsewhere) -> settings, arguments of the first step, of `prepare`.

    The result of each step is STEP.
    """

    def run(module, words, elsewhere=""):
        place = module.__name__[len(PLUGIN) :]
        preparation = mock.MagicMock(
            finished=False, folder=tmp_path, settings={"normalization": "NFC"}
        )
        preparation.__enter__.return_value = preparation
        preparation.step.return_value = STEP
        made = mock.Mock(return_value=preparation)
        monkeypatch.setattr(module, "Preparation", made)
        words = [tmp_path / "new", *words]
        ((call,),) = calls_of(module.main, words, place + ".prepare", elsewhere=elsewhere)
        assert call.args[0] is preparation
        settings, first = made.call_args.args[1], preparation.step.call_args_list[0].args
        return settings, first[1:], mock.call(*call.args[1:], **call.kwargs)

    return run


def test_prepare_translation(prepared, tmp_path):
    for name in ("a", "b", "valid", "test"):
        for language in ("de", "en"):
            (tmp_path / f"{name}.{language}").write_text("x\n")
    words = [
        "--source-lang",
        "de",
        "--target-lang",
        "en",
        "--train",
        tmp_path / "a",
        tmp_path / "b",
    ]
    words += ["--test", tmp_path / "test", "--tokenizer", "moses", "--lowercase", "--max-words", 7]
    words += ["--max-ratio", 3, "--subword", "sentencepiece", "--vocab-size", 50, "--workers", 999]
    words += ["--no-joined-dictionary"]
    expected = {
        "source_lang": "de", "target_lang": "en", "tokenizer": "moses", "lowercase": True,
        "min_words": 1, "max_words": 7, "max_ratio": 3.0, "subword": "sentencepiece",
        "vocab_size": 50, "joined_dictionary": False, "normalization": "NFC",
    }  # fmt: skip
    for more, every, unset in (
        (["--valid", tmp_path / "valid"], None, "valid_every like"),
        (["--valid-every", 5], 5, "valid like"),
    ):
        settings, first, call = prepared(prepare_translation, [*words, *more], unset)
        read = first[1]
        inputs = {
            f"{split}.{language}": [digest(f"{name}.{language}") for name in names]
            for split, names in read.items()
            for language in ("de", "en")
        }
        assert settings == {**expected, "valid_every": every, "inputs": inputs}
        assert read["train"] == [str(tmp_path / "a"), str(tmp_path / "b")]
        assert list(read) == ["train", *([] if every else ["valid"]), "test"]
        assert first == (read_text, read, ["de", "en"], tmp_path, "NFC")
        assert call == mock.call(999, STEP, like=None)


def test_prepare_iwslt14(prepared, tmp_path):
    (tmp_path / "a.tgz").write_text("x")
    words = ["--archive", tmp_path / "a.tgz", "--expect-pairs", "3,2,1", "--subword"]
    words += ["sentencepiece", "--vocab-size", 50, "--joined-dictionary", "--workers", 999]
    settings, first, call = prepared(prepare_iwslt14, words)
    assert settings["archive"] == digest(tmp_path / "a.tgz")
    assert (settings["subword"], settings["vocab_size"]) == ("sentencepiece", 50)
    assert settings["joined_dictionary"] is True
    assert first[:2] == (iwslt14.extract, tmp_path / "a.tgz")
    assert call == mock.call(999, expected_pairs={"train": 3, "valid": 2, "test": 1})


SUMMARIES = "--vocab-size 50 --sentencepiece-documents 60 --max-source 70 --lowercase --workers 999"
OF_SUMMARIES = {
    "vocab_size": 50, "sentencepiece_documents": 60, "max_source": 70, "lowercase": True
}  # fmt: skip


def test_prepare_cnn_dm(prepared, tmp_path):
    paths = [tmp_path / name for name in ("a.tgz", "b.tgz", "train", "valid", "test")]
    for path in paths:
        path.write_text(path.name)
    words = ["--stories", *paths[:2], "--split-ids", *paths[2:], "--expect", "3,2,1"]
    settings, first, call = prepared(prepare_cnn_dm, [*words, *SUMMARIES.split()])
    digests = [digest(path) for path in paths]
    assert settings["inputs"] == {"stories": digests[:2], "split_ids": digests[2:]}
    assert settings["expect"] == "3,2,1" and OF_SUMMARIES.items() <= settings.items()
    assert first[0] is cnn_dm.read and first[2:] == (paths[:2], paths[2:], 999)
    assert call == mock.call(STEP, 999)


def test_prepare_summarization(calls_of, tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("{}\n")
    words = [tmp_path / "new", "--fields", "text", "abstract"]
    words += ["--train", path, "--valid", "VALID", "--test", "TEST"]
    words += ["--pretrain", "gap", "--pretrain-sentences", 5, *SUMMARIES.split()]
    place = "commands.prepare_summarization.prepare_files"
    ((call,),) = calls_of(prepare_summarization.main, words, place, elsewhere="like")
    destination, inputs, settings, workers, pretraining, like = call.args
    assert inputs == {"train": path, "valid": Path("VALID"), "test": Path("TEST")}
    assert settings["fields"] == ["text", "abstract"] and OF_SUMMARIES.items() <= settings.items()
    assert (destination, workers, like) == (tmp_path / "new", 999, None)
    assert pretraining == Pretraining("gap", 5)


def test_prepare_classification(prepared, tmp_path):
    files = {split: tmp_path / split for split in ("train", "valid", "test")}
    for path in (*files.values(), tmp_path / "archive"):
        path.write_text(path.name)
    given = [word for split, path in files.items() for word in ("--" + split, path)]
    words = ["--max-positions", 40, "--workers", 999]
    pieces = ["--vocab-size", 50, "--sentencepiece-documents", 60]
    archive = digest(tmp_path / "archive")
    of_pieces = {"vocab_size": 50, "sentencepiece_documents": 60}
    unset = "imdb valid_every"
    for more, units, source, elsewhere in (
        ([*given, *pieces], "subwords", (files, None, 10), unset + " bytes words"),
        ([*given, "--bytes"], "bytes", (files, None, 10), unset + " words"),
        ([*given, "--words"], "words", (files, None, 10), unset + " bytes"),
        (
            ["--imdb", tmp_path / "archive", "--valid-every", 7, "--words"],
            "words",
            ({}, tmp_path / "archive", 7),
            "train valid test bytes",
        ),
    ):
        if units != "subwords":
            elsewhere += " vocab_size sentencepiece_documents"
        settings, first, call = prepared(prepare_classification, [*words, *more], elsewhere)
        assert settings["units"] == units and settings["max_positions"] == 40
        assert units != "subwords" or of_pieces.items() <= settings.items()
        if source[0]:
            assert settings["inputs"] == {split: digest(path) for split, path in files.items()}
        else:
            assert settings["inputs"] == {"archive": archive} and settings["valid_every"] == 7
        assert first[0] is read_texts and first[2:] == (*source, 999)
        assert call == mock.call(STEP, 999)
