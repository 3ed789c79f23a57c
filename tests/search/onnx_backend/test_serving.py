"""Folders, good and bad, and what is imported to read them."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest

from fairseq_plugins import cli
from fairseq_plugins.api import Scored, Summarizer, Translator
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.search.onnx_backend import exported_model as engine
from fairseq_plugins.search.onnx_backend.folder import Dictionary, Export
from fairseq_plugins.search.torch_backend import trained_model as torch_engine
from fairseq_plugins.system import workers
from tests.search.onnx_backend.conftest import sign

WITHOUT_TORCH = """
import runpy, sys
folder = sys.argv[1]
sys.argv = ["-m"]  # as `python -m fairseq_plugins` has it
sys.orig_argv = ["python", "-m", "fairseq_plugins"]
from fairseq_plugins import Summarizer, Translator, pretrained
for name in pretrained.names():  # those in the box
    assert Translator(name).translate(["a"]) != [""], name
print(Translator(folder).translate(["a b", ""]))
for words in (["translate", "--beam", "3"], ["summarize", "--max-len", "5"]):
    sys.argv = ["fairseq-plugins", *words, "--model", folder, "--input", "documents"]
    try:
        runpy.run_module("fairseq_plugins", run_name="__main__")
    except SystemExit as end:
        assert end.code == 0
unwanted = {"torch", "fairseq", "onnx", "hydra"} & set(sys.modules)
assert not unwanted, unwanted
"""


def test_translate_keeps_lines_and_needs_no_torch(exported, tmp_path):
    """Neither do the commands."""
    translator = Translator(exported.folder)
    lines = ["a b c", "", "d", "a b c"]
    found = translator.translate(lines)
    assert found[1] == "" and found[0] == found[3] and found[0]
    assert [translator.translate([line])[0] for line in lines] == found
    environment = dict(os.environ)
    python = environment.pop("SERVING_PYTHON", sys.executable)
    if python != sys.executable:  # .ci/run installs the wheel there: not the checkout's files
        environment.pop("PYTHONPATH", None)
    (tmp_path / "documents").write_text("a b\n\nc\n")
    run = subprocess.run(
        [python, "-c", WITHOUT_TORCH, exported.folder],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    first, *written = run.stdout.split("\n")
    assert first == str(translator.translate(["a b", ""]))
    assert len(written) == 7 and written[1] == written[4] == written[6] == ""


@pytest.mark.parametrize(
    "make, given, told",
    [
        (Translator, {"int8": True}, "--int8 is for checkpoints"),
        (Translator, {"data": "x"}, "--data is for checkpoints"),
        (Translator, {"models": "{0} {0}"}, "an exported model cannot join an ensemble"),
        (Translator, {"models": "{0}/encoder.onnx"}, "is a file of an exported model: give its fo"),
        (Translator, {"threads": -1}, "--threads -1: must be "),
        (Translator, {"max_tokens": -1}, "--max-tokens -1: must be "),
        (Translator, {"beam": 900}, "--beam 900: this model's vocabulary allows up to"),
        (Translator, {"min_len": 5000}, "--min-len 5000: this model writes at most"),
        (Summarizer, {"max_length": 1000}, "--max-len 1000"),
        (Summarizer, {"min_length": 300}, r"--min-len 300 is above --max-len \d+"),
        (Summarizer, {"min_len": 4}, "takes min_length, not min_len"),
    ],
    ids=str,
)
def test_what_an_export_cannot_do(exported, make, given, told):
    models = given.get("models", "{0}").format(exported.folder).split()
    with pytest.raises(ConfigurationError, match=told):
        make(**{**given, "models": models})


def test_threads_share_a_translator(exported):
    """Translations are each caller's own."""
    lines = [["a b c", "d"], ["e"], ["a " * 200, "c"], ["", "b d"]] * 4
    expected = [Translator(exported.folder).translate(some) for some in lines]
    translator = Translator(exported.folder)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(translator.translate, lines)) == expected
    assert translator.translate(lines[2]) == expected[2] and translator.split == [1]
    assert translator.translate(lines[0]) == expected[0] and translator.split == []


def test_hypotheses_with_prefixes(exported):
    translator = Translator(exported.folder, beam=4, nbest=3)
    found, none = translator.hypotheses(["a b", " "])
    assert len(found) == 3 and none == [Scored("", 0.0)]
    assert [scored.score for scored in found] == sorted((s.score for s in found), reverse=True)
    # the two pieces of this prefix are no words of this model, and stay as they are
    empty, begun = translator.hypotheses(["", "a b"], ["", "xy"])
    assert empty == none and len(begun) == 3
    assert all(scored.text.startswith("xy ") for scored in begun)


def test_the_command_writes_several_with_their_scores(exported, tmp_path, capsys):
    """Of all lines, also a line in parts, whatever the buffer."""
    lines, begin = ["a b", "", "b " * 100, "c"], ["", "", "xy", "a"]
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines))
    (tmp_path / "begin").write_text("".join(prefix + "\n" for prefix in begin))
    words = ["translate", "--model", str(exported.folder), "--input", str(tmp_path / "in")]
    words += ["--output", str(tmp_path / "out"), "--prefixes", str(tmp_path / "begin")]
    search = {"beam": 3, "min_len": 4, "no_repeat_ngram": 2}
    words += ["--beam", "3", "--min-len", "4", "--no-repeat-ngram-size", "2", "--max-len", "9"]
    several = Translator(exported.folder, nbest=2, **search)
    several.max_length = lambda length: 9
    expected = several.hypotheses(lines, begin, split=True)
    assert several.split == [3] and expected[2][0].text.startswith("xy")
    for buffer in ("1", "100"):
        assert cli.main([*words, "--buffer", buffer, "--json", "--nbest", "2"]) == 0
        found = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
        for each, hypotheses in zip(found, expected, strict=True):
            texts = [(h["text"], h["complete"]) for h in each["translations"]]
            assert texts == [(h.text, h.complete) for h in hypotheses]
            tokens = [h["tokens"] for h in each["translations"]]
            assert tokens == [list(h.tokens) for h in hypotheses]
            decoded = [several.processor.decode(" ".join(each)) for each in tokens]
            assert decoded == [h.text for h in hypotheses]
            scores = [h["score"] for h in each["translations"]]
            assert scores == pytest.approx([h.score for h in hypotheses], abs=1e-5)
    for more in ([], ["--processes", "2", "--buffer", "2"]):
        capsys.readouterr()
        assert cli.main([*words, *more]) == 0
        assert (tmp_path / "out").read_text().splitlines() == [h[0].text for h in expected]
        told = capsys.readouterr().err.splitlines()
        assert told[0].startswith("1 line over the model's limit of") and told[0].endswith(
            "parts: number 3"
        )
        assert told[1].endswith(f"number {', '.join(map(str, several.cut_off))}")
    drawn = [*words[:7], *"--sampling --sampling-topk 5 --temperature 0.7 --seed 2".split()]
    options = {"sampling": True, "sampling_topk": 5, "temperature": 0.7, "seed": 2}
    expected = Translator(exported.folder, **options).translate(lines)
    for more in ([], ["--processes", "2", "--buffer", "2"]):
        assert cli.main([*drawn, *more]) == 0
        assert (tmp_path / "out").read_text().splitlines() == expected
    with pytest.raises(ConfigurationError, match="--nbest 2 is for --json: add it"):
        cli.main([*words, "--nbest", "2"])
    for begin, told in (
        ("a\n", "/begin has fewer lines than the input"),
        ("\n" * 5, "/begin has more lines than the input"),
        ("\n\n\n" + "a " * 500, "prefix 4 has 500 subwords"),
    ):
        (tmp_path / "begin").write_text(begin)
        with pytest.raises(ConfigurationError, match=told):
            cli.main([*words, "--buffer", "2"])
        for part in tmp_path.glob("out.part*"):  # which belongs to these prefixes
            part.unlink()


def test_documents_are_summarized_in_several_processes(exported, tmp_path, capfd, monkeypatch):
    """In order, with the draws of their numbers, and each message once."""
    asked = mock.Mock(side_effect=workers.map_batches)
    monkeypatch.setattr(workers, "map_batches", asked)
    documents = ["a b c", "", "b " * 100, "c a", "b"]
    (tmp_path / "in").write_text("".join(document + "\n" for document in documents))
    words = ["summarize", "--model", exported.folder, "--input", tmp_path / "in", "--sampling"]
    words += ["--max-len", 7, "--min-len", 3, "--json", "--nbest", 2, "--output"]
    told = []
    for name, more in (("one", []), ("two", ["--processes", 2, "--buffer", 4])):
        assert cli.main([str(word) for word in [*words, tmp_path / name, *more]]) == 0
        told.append(capfd.readouterr().err)
    one, two = ((tmp_path / name).read_text().splitlines() for name in ("one", "two"))

    def near(digits):  # the last digits of scores depend on the batch
        return pytest.approx(float(digits), abs=1e-5)

    found = [json.loads(line) for line in two]
    assert found == [json.loads(line, parse_float=near) for line in one]
    assert [len(each["summaries"]) for each in found] == [2, 1, 2, 2, 2]
    assert [call.args[2] for call in asked.call_args_list] == [2]
    assert told[0] == told[1] and told[0].count("was prepared for translation") == 1
    assert "1 document over the model's limit of" in told[0] and "number 3" in told[0]


def test_prefixes_and_lines_that_cannot_be_used(exported):
    translator = Translator(exported.folder)
    for lines, prefixes, told in (
        (["a", "b"], ["a"], "prefixes: there are 1 for 2 lines"),
        (["", "a"], ["", "a " * 500], "prefix 2 has 500 subwords, but the limit is"),
        (["a", "a " * 500], None, "line 2 has 500 subwords, but the model reads at most"),
        (["a", "a \ud83d"], None, r"^text 2, character 3: '\\ud83d' is half of a"),
        (["a"], "a", "expected a list of texts, got one"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            translator.hypotheses(lines, prefixes)


def test_hypotheses_tell_what_the_limit_stopped(exported):
    (found,) = Translator(exported.folder, nbest=5, min_len=63).hypotheses(["a b"])
    assert found and not any(scored.complete for scored in found)
    (found,) = Translator(exported.folder, nbest=5).hypotheses(["a b"])
    lengths = [len(scored.text.split()) for scored in found]
    assert [scored.complete for scored in found] == [length < 63 for length in lengths]


def test_the_draws_of_a_line_depend_on_its_number(exported):
    """Empty lines count, so that a line keeps its draws when another one is emptied."""
    options = {"sampling": True, "seed": 3, "beam": 4, "nbest": 4}
    translator = Translator(exported.folder, **options)
    whole = translator.hypotheses(["a b", "b a c"])
    assert translator.hypotheses(["", "b a c"])[1] == whole[1]
    assert translator.hypotheses(["b a c"], first=1) == whole[1:]
    translator.max_source = 2
    in_parts = translator.hypotheses(["a b a b"], split=True)[0][0].tokens
    first = whole[0][0].tokens
    assert in_parts[: len(first)] == first != in_parts[len(first) :]
    drawn = Summarizer(exported.folder, **{**options, "nbest": 1})
    whole = drawn.summarize(["a b", "b a c"])
    assert drawn.summarize(["b a c"], first=1) == whole[1:]


def test_dictionary_is_fairseqs(exported, task):
    for side in ("source", "target"):
        ours, theirs = getattr(exported, side), getattr(task, side + "_dictionary")
        assert ours.words == theirs.symbols
    pieces = [exported.source.words[7], "certainly-unknown", exported.source.words[5]]
    expected = task.source_dictionary.encode_line(" ".join(pieces), add_if_not_exist=False)
    assert exported.source.encode(pieces) == expected.tolist()


def test_releases_that_decode_wrongly_are_refused(exported, monkeypatch):
    monkeypatch.setattr("onnxruntime.__version__", "1.20.1")
    with pytest.raises(
        ConfigurationError, match="onnxruntime 1.20.1 decodes wrongly: install 1.21"
    ):
        Export(exported.folder)


def damage_graph(folder):
    path = folder / "decoder.onnx"
    path.write_bytes(path.read_bytes()[:-100])


def damage_and_sign(folder):
    damage_graph(folder)
    sign(folder)


def two_encoders(folder):
    shutil.copy(folder / "encoder.onnx", folder / "decoder.onnx")
    sign(folder)


def change_dictionary(folder, line):
    for path in folder.glob("dict.*.txt"):
        path.write_text(line)
    sign(folder)


def without_digests(folder, *names):
    files = json.loads((folder / "config.json").read_text())["files"]
    change_config(folder, files={name: files[name] for name in files.keys() - set(names)})


def link(folder, name):
    (folder / name).rename(folder / "elsewhere")
    (folder / name).symlink_to(folder / "elsewhere")


def change_record(folder, **values):
    path = folder / "preparation.json"
    record = json.loads(path.read_text())
    record["settings"].update(values)
    path.write_text(json.dumps(record))
    sign(folder)


def put(folder, name, content):
    (folder / name).write_bytes(content)
    sign(folder)


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), **values)))


@pytest.mark.parametrize(
    "damage, told",
    [
        (lambda folder: shutil.rmtree(folder), "config.json cannot be read"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json cannot be read"),
        (
            lambda folder: change_config(folder, format=99),
            "by another version .format 99, not 1.: make it anew",
        ),
        (lambda folder: (folder / "encoder.onnx").unlink(), "onnx is missing: copy or export"),
        (damage_graph, "decoder.onnx is damaged"),
        (damage_and_sign, "decoder.onnx cannot be loaded"),
        (lambda folder: change_config(folder, files=[]), "config.json has no valid files"),
        (lambda folder: change_config(folder, max_source=None), "has no valid max_source"),
        (lambda folder: (folder / "model.bin").touch(), "this folder is for CTranslate2"),
        (two_encoders, "do not match"),
        (lambda folder: change_dictionary(folder, "word\n"), "'word' is not a token and its count"),
        (lambda folder: change_dictionary(folder, "word 1\n"), "match .* was written, and dict"),
        (lambda folder: (folder / "config.json").write_text("[" * 99999), "cannot be read"),
        (lambda folder: (folder / "config.json").write_text('["format"]'), "cannot be read"),
        *[
            (
                lambda folder, name=name, value=value: change_config(folder, **{name: value}),
                f"config.json has no valid {name}",
            )
            for name, values in {
                "max_source": [0, -1, True, 2.5, 1 << 40],
                "max_output": [0],
                "files": [{}],
                "most_candidates": [1],
                "length_multiple": [0, 1 << 20],
                "target_lang": ["../x"],
                "source_lang": ["a\0", 5],
            }.items()
            for value in values
        ],
        (lambda folder: change_config(folder, files={"../x": "0"}), "has no valid files"),
        (lambda folder: change_config(folder, files={"encoder.onnx": 0}), "has no valid files"),
        (lambda folder: without_digests(folder, "decoder.onnx"), "no digest of decoder.onnx"),
        (lambda folder: link(folder, "encoder.onnx"), "encoder.onnx is a link"),
        (
            lambda folder: change_config(folder, format="\x1b[2J\nerror: pay"),
            r"format \\x1b\[2J\\nerror: pay, not",
        ),
        (lambda folder: without_digests(folder, "bpe.codes"), "no digest of bpe.codes"),
        (lambda folder: without_digests(folder, "preparation.json"), "no digest of preparation"),
        (lambda folder: put(folder, "preparation.json", b"[" * 99999), "cannot be used"),
        (lambda folder: put(folder, "preparation.json", b"[]"), "cannot be used"),
        (lambda folder: put(folder, "bpe.codes", b"\x1b[2J"), "bpe.codes is damaged"),
        (lambda folder: change_record(folder, subword="sentencepiece"), "sentencepiece.model is m"),
        *[
            (
                lambda folder, name=name, value=value: change_record(folder, **{name: value}),
                f"cannot be used \\({name} .* is unknown",
            )
            for name, value in (
                ("subword", ["bpe"]),
                ("subword", "x"),
                ("tokenizer", {}),
                ("lowercase", 3),
                ("max_source", 1),
                ("moses_codes", []),
            )
        ],
    ],
)
def test_bad_folders_are_told_in_one_line(tmp_path, exported, damage, told):
    folder = tmp_path / "export"
    shutil.copytree(exported.folder, folder)
    damage(folder)
    with pytest.raises(ConfigurationError, match=told) as error:
        Export(folder)
        Translator(folder).translate(["a b c"])
    assert str(error.value).isprintable() and str(folder) in str(error.value)


def test_an_error_of_a_running_graph_is_told_in_one_line(exported):
    with pytest.raises(ConfigurationError, match="graphs and dictionaries do not match") as error:
        with exported.running():
            exported.encoder.run(None, {"tokens": np.zeros((1, 2), np.float32)})
    assert "\n" not in str(error.value) and str(exported.folder) in str(error.value)


def test_overwritten_symbols_of_a_dictionary(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("a 3\n<unk> 2 #fairseq:overwrite\nb 1\n", encoding="utf-8")
    dictionary = Dictionary(path)
    assert dictionary.words[4:] == ["a", "<unk>", "b"]
    assert dictionary.encode(["<unk>", "zzz", "b"]) == [5, 3, 6, 2]


def test_a_loaded_model_cannot_be_pickled_but_copied(exported):
    translator = Translator(exported.folder)
    with pytest.raises(TypeError, match="a loaded model cannot be pickled: .*spawn"):
        pickle.dumps(translator)
    assert copy.copy(translator).translate(["a b c"]) == translator.translate(["a b c"])
    others = engine.ExportedClassifier, torch_engine.TrainedModel, torch_engine.TrainedClassifier
    for kind in others:
        with pytest.raises(TypeError, match="a loaded model cannot be pickled"):
            pickle.dumps(kind.__new__(kind))
