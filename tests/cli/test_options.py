"""Options of the commands imported here reach what the command calls: an ignored one fails.

Many change nothing that another test sees: batches, processes, threads, a GPU that is not there.
Those of commands in `HELD_ELSEWHERE` have other tests, and so have those of the laboratory.
"""

from pathlib import Path
from unittest import mock

import pytest

from fairseq_plugins.cli import (
    FOLDERS,
    average,
    classify,
    commands,
    distill,
    evaluate,
    export,
    summarize,
    translate,
)
from fairseq_plugins.distill.distillation import DistillationRequest
from fairseq_plugins.evaluate import request
from fairseq_plugins.options import arguments, recipes
from fairseq_plugins.options.fields import options_of

PLUGIN, STEP = "fairseq_plugins.", object()
HELD_ELSEWHERE = {
    "adopt": "evaluate/test_published.py",
    "join-dictionaries": "data/test_join_dictionaries.py",
    "plot": "cli/test_plot.py",
    "sweep": "train/test_sweep.py",
    "prepare-bidirectional": "data/test_bidirectional.py",
    **{
        f"prepare-{name}": "data/test_options.py"
        for name in ("classification", "cnn-dm", "iwslt14", "summarization", "translation")
    },
    "train": "train/test_planning.py",
}
COVERED = [average, classify, distill, evaluate, export, summarize, translate]


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
    which other tests hold, and `--user-dir`, which `options/test_user_dirs.py` holds.
    """

    def run(main, words, *places, elsewhere=""):
        given, read = [], arguments.read
        monkeypatch.setattr(arguments, "read", lambda *how: given.append(read(*how)) or given[-1])
        made = [mock.MagicMock() for _ in places]
        made[-1].side_effect = Reached
        for place, function in zip(places, made):
            monkeypatch.setattr(PLUGIN + place, function)
        with pytest.raises(Reached):
            main([str(word) for word in words])
        options = {each.name for each in options_of(type(given[0])) if each.name != "words"}
        assert options - given[0].given == {"user_dir", *elsewhere.split()}
        return [function.call_args_list for function in made]

    return run


SEARCH = """--cpu --fp16 --int8 --max-tokens 70 --beam 6 --lenpen 0.5 --min-len 3
    --no-repeat-ngram-size 4""".split()


@pytest.mark.parametrize(
    "main, more, options, elsewhere",
    [
        (translate.main, ["--nbest", 2, "--json"], {"nbest": 2}, "prefixes check_spans html"),
        (summarize.main, ["--nbest", 2, "--json"], {"nbest": 2}, "documents"),
    ],
)
def test_translate_and_summarize(main, more, options, elsewhere, calls_of):
    words = ["--model", "a", "b", "--data", "DATA", "--threads", 2, *SEARCH, *more]
    words += ["--sampling", "--sampling-topk", 9, "--temperature", 0.7, "--seed", 8]
    elsewhere += " output buffer processes max_len num_shards shard_id sampling_topp"
    elsewhere += " diverse_beam_groups diverse_beam_strength"
    words += ["--input", __file__]
    ((opened,),) = calls_of(main, words, "api.open_engine", elsewhere=elsewhere)
    expected = {
        "threads": 2, "cpu": True, "fp16": True, "int8": True,
        "max_tokens": 70, "beam": 6, "lenpen": 0.5, "min_len": 3, "no_repeat_ngram": 4,
        "sampling": True, "sampling_topk": 9, "temperature": 0.7, "seed": 8, "user_dir": (),
        "sampling_topp": 0.0, "diverse_beam_groups": 0, "diverse_beam_strength": 0.5,
    }  # fmt: skip
    assert opened == mock.call([Path("a"), Path("b")], Path("DATA"), **expected, **options)


def test_classify(calls_of):
    words = ["--model", "run", "--data", "DATA", "--cpu", "--max-tokens", 70, "--threads", 2]
    words += ["--input", __file__]
    elsewhere = "output buffer processes num_shards shard_id"
    ((made,),) = calls_of(classify.main, words, "cli.classify.Classifier", elsewhere=elsewhere)
    options = {"cpu": True, "max_tokens": 70, "threads": 2, "user_dir": ()}
    assert made == mock.call(Path("run"), Path("DATA"), **options)


def test_distill(calls_of):
    words = ["DATA", "A", "B", "--out", "NEW", "--last", 4, "--keep", "nearest", "--nbest", 3]
    words += ["--extra", "X", "--back-translate", "Y", "--reverse", "R", "--no-tag", *SEARCH]
    words += ["--max-len", 40, "--processes", 2]
    places = "distill.teachers.Teacher.of", "distill.distillation.distill"
    made, (done,) = calls_of(distill.main, words, *places)
    asked, out, *_, processes, workers = done.args
    search = {
        "beam": 6, "lenpen": 0.5, "max_tokens": 70, "cpu": True, "fp16": True, "int8": True,
        "min_len": 3, "max_len": 40, "no_repeat_ngram": 4, "user_dir": [],
    }  # fmt: skip
    assert made == [
        mock.call(names, Path("DATA"), 4, {**search, "nbest": count}, option)
        for names, count, option in (
            ([Path("A"), Path("B")], 3, "TEACHER"), ([Path("R")], 1, "--reverse")
        )
    ]  # fmt: skip
    assert asked == DistillationRequest(Path("DATA"), "nearest", Path("X"), Path("Y"), tag=False)
    assert (out, processes, workers) == (Path("NEW"), 2, 2)


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
            split="valid",
            settings=[recipes.find("generate_cnn_dm")],
            beam=6,
            max_tokens=70,
            words=["--lenpen", "2"],
            cpu=True,
            user_dir=[],
            unicode=True,
            threads=2,
            ensemble=[Path("B"), Path("C")],
            **chosen,
        )  # fmt: skip
    )


OF_FAIRSEQ = " ".join(f"num_{kind}_checkpoints" for kind in ("epoch", "update", "best"))


@pytest.mark.parametrize(
    "words, expected, unset",
    [
        (["--last", 3, "--by", "update"], (3, None, "update"), f"best {OF_FAIRSEQ}"),
        (["--best", 3], (None, 3, None), f"last by {OF_FAIRSEQ}"),
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
