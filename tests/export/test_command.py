"""The command export: what it prints, what it refuses, and what it leaves behind."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from fairseq_plugins import cli
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.model import options_of_export, parse_generation
from fairseq_plugins.export import comparison, exporter
from fairseq_plugins.export import ctranslate2 as converter
from fairseq_plugins.export.folder import check_new_folder, new_folder
from fairseq_plugins.search.onnx_backend.folder import Export
from tests.conftest import SIZES, write_toy_text
from tests.tiny_runs import call

LIMIT = 8  # positions of the model's sources


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    write_toy_text(folder / "raw", SIZES)
    words = "--source-lang src --target-lang tgt --workers 1 --tokenizer none --vocab-size 80"
    texts = [word for split in SIZES for word in (f"--{split}", folder / "raw" / split)]
    call("prepare-translation", folder / "data", *words.split(), *texts)
    return folder / "data"


@pytest.fixture(scope="module")
def run(tmp_path_factory, prepared, run_train, train_args):
    """A training whose encoder has learned positions, too few for some sentences."""
    folder = tmp_path_factory.mktemp("run")
    run_train(
        prepared, *train_args, "--save-dir", folder, "--max-update", 2, "--disable-validation",
        "--encoder-learned-pos", "--max-source-positions", LIMIT,
        "--skip-invalid-size-inputs-valid-test",
    )  # fmt: skip
    return folder


@pytest.fixture
def out(tmp_path):
    """A folder that does not exist."""
    return tmp_path / "exported"


def run_command(*words):
    return cli.main(["export", *map(str, words)])


def refused(out, *words):
    """The error of the command, which leaves nothing behind."""
    before = sorted(out.parent.iterdir())
    with pytest.raises(ConfigurationError) as error:
        run_command(*words, "--out", out)
    assert "\n" not in str(error.value) and sorted(out.parent.iterdir()) == before
    return str(error.value)


@pytest.fixture
def without_building(monkeypatch):
    def fail(*arguments):
        raise AssertionError("this was to be refused before")

    monkeypatch.setattr(exporter, "write_graphs", fail)


def test_a_whole_split(capsys, monkeypatch, out, run, prepared):
    """All options at once; a folder of the user's with a similar name stays as it is."""
    (out.parent / "exported.part").mkdir()
    (out.parent / "exported.part" / "notes").write_text("mine")
    words = ["--int8", "--compare", "valid", "--licence", "MIT"]
    limits, search = [], comparison.search

    def recorded(exported, sources, options):
        limits.extend((len(source.pieces), source.limit) for source in sources)
        return search(exported, sources, options)

    monkeypatch.setattr(comparison, "search", recorded)
    assert run_command(run, "--out", out, *words) == 0
    assert sorted(out.parent.iterdir()) == [out, out.parent / "exported.part"]
    assert (out.parent / "exported.part" / "notes").read_text() == "mine"
    assert json.loads((out / "config.json").read_text())["licence"] == "MIT"
    assert Export(out).max_source == LIMIT - 1
    # the scores are of whole translations
    limit = Prepared(out).length_limit("src", "tgt")
    assert limit.ratio == Prepared(prepared).length_limit("src", "tgt").ratio is not None
    assert set(limits) == {(n, limit(n)) for n, _ in limits}

    raw = (prepared / "text" / "raw" / "valid.src").read_text().splitlines()
    sources = list(map(Prepared(prepared).processor("src", "tgt").encode, raw))
    long = sum(len(line.split()) >= LIMIT for line in sources)
    short = len(sources) - long
    lines = capsys.readouterr().err.splitlines()
    assert f"skipped: {long} sentences longer than the model's limit" in lines
    assert 0 < long < len(sources)
    told = f"float32: torch's hypothesis or a tie for {short} of {short} sentences; scores differ"
    assert any(line.startswith(told) for line in lines)
    assert any(line.startswith("8-bit: torch's hypothesis or a tie for ") for line in lines)
    words = ["evaluate", prepared, out, "--split", "valid", "--cpu"]
    with pytest.raises(ConfigurationError, match="is an exported model, which has no checkpoints"):
        cli.main([*map(str, words), "--last", "3"])
    words += ["--compare", run, "--checkpoint", "checkpoint_last.pt"]
    opened, session = [], Export.session
    monkeypatch.setattr(Export, "session", lambda *given: opened.append(given) or session(*given))
    assert cli.main(list(map(str, words))) == 0
    assert len(opened) == 2, "a graph was loaded twice"
    with pytest.raises(ConfigurationError, match="^--fp16 is for checkpoints, not for an exported"):
        options_of_export(parse_generation(["--fp16"]))


def test_an_export_that_disagrees_with_torch(monkeypatch, out, run):
    monkeypatch.setattr(exporter, "write_graphs", lambda *arguments: None)
    monkeypatch.setattr(comparison, "Export", lambda folder: None)
    monkeypatch.setattr(comparison, "search_with_export", lambda *arguments: [])
    for agreement in (
        comparison.Agreement("float32", 20, 19, 0.0),
        comparison.Agreement("float32", 20, 20, 1.0),
    ):
        monkeypatch.setattr(comparison, "compare", lambda *arguments, result=agreement: result)
        assert "disagrees with torch" in refused(out, run)


@pytest.mark.usefixtures("without_building")
def test_a_model_that_holds_no_numbers(out, run, tmp_path):
    state = torch.load(run / "checkpoint_last.pt", weights_only=False)
    state["model"]["decoder.layers.0.fc1.weight"][0, 0] = float("nan")
    torch.save(state, tmp_path / "failed.pt")
    for more in ([], ["--format", "ctranslate2"]):
        with pytest.raises(
            ConfigurationError, match="decoder.layers.0.fc1.weight holds non-numeric values"
        ):
            run_command(tmp_path / "failed.pt", "--out", out, *more)
    assert not out.exists()


def test_what_a_killed_export_left_is_removed(out):
    """And nothing else: neither what another export makes now, nor the user's."""
    left, mine = out.with_name("exported.part"), out.with_name("exported.baseline")
    for folder in (left / "exported", mine):
        folder.mkdir(parents=True)
        (folder / "graph").touch()
    with new_folder(out) as first:
        assert not list(first.iterdir())
        with new_folder(out.with_name("exported2")):
            pass
        with pytest.raises(ConfigurationError, match="another export is running in"):
            with new_folder(out):
                pass
        assert first.exists()
    names = ["exported", "exported.baseline", "exported2"]
    assert sorted(path.name for path in out.parent.iterdir()) == names


def test_a_full_disk_is_told(run, out, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(exporter, "write_graphs", fail)
    assert f"--out {out} cannot be written: No space left on device" in refused(out, run)


def test_a_folder_that_was_made_meanwhile_stays(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ConfigurationError, match=f"--out {out} already exists: give a new folder"):
        with new_folder(out):
            out.mkdir()
    assert os.listdir(tmp_path) == ["out"] and not os.listdir(out)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigurationError, match="loop already exists: give a new folder"):
        check_new_folder(tmp_path / "loop")


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_a_stop_is_no_exception_where_c_calls_python(number, tmp_path):
    code = """
import os, signal, sys
number, sys.argv = int(sys.argv[1]), ["fairseq-plugins"]
signal.signal(number, signal.SIG_DFL)  # these tests may run under nohup
from pathlib import Path
import fairseq_plugins; fairseq_plugins.register()
from fairseq_plugins.export.folder import new_folder
with new_folder(Path("out")) as part:
    (part / "config.json").touch()
    try:
        os.kill(os.getpid(), number)
    finally:
        print("an exception")
"""
    words = [sys.executable, "-c", code, str(int(number))]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "stopped\n")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("score", [float("nan"), np.array([0.5, float("nan")])])
def test_scores_that_are_no_numbers_differ(score):
    found = comparison.compare([([7, 2], score), ([2], 0.0)], [([7, 2], 0.5), ([2], 0.0)])
    assert found.largest_difference == float("inf")


def test_what_is_refused_before_anything_is_built(monkeypatch, out, run, prepared, tmp_path):
    assert refused(out, tmp_path / "nowhere").startswith(f"RUN {tmp_path}/nowhere does not exist:")
    data = tmp_path / "data"
    shutil.copytree(prepared, data)
    for path in data.glob("test.src-tgt.*"):
        path.unlink()
    error = refused(out, run, "--data", data, "--compare", "test")
    assert error.startswith("--compare test: ") and str(data) in error
    out.mkdir()
    assert refused(out, run) == f"--out {out} already exists: give a new folder"
    (out / "file").touch()
    told = f"--out {out}/file/new/folder: {out}/file is not a folder that you can write to"
    with pytest.raises(ConfigurationError, match=told):
        run_command(run, "--out", out / "file" / "new" / "folder")


def test_ctranslate2(monkeypatch, capsys, out, run):
    pytest.importorskip("ctranslate2", reason="needs ctranslate2: pip install it")
    words = [run, "--format", "ctranslate2", "--int8"]
    assert run_command(*words, "--out", out) == 0
    assert "8 bits: CTranslate2's scores of torch's hypotheses differ by" in capsys.readouterr().err
    assert (out / "model.bin").is_file() and list(out.parent.iterdir()) == [out]
    shutil.rmtree(out)
    monkeypatch.setattr(converter, "largest_difference", lambda *arguments: 0.5)
    assert "scores differ from torch's by up to 5.0e-01" in refused(out, *words)
