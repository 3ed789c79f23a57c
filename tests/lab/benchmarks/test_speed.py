"""README's ratios against those stored for a kind of processor, with made-up figures."""

import argparse
import json
from types import SimpleNamespace

import pytest
import torch

from fairseq_plugins import cpu
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.benchmarks import exports, goals, machine, speed
from fairseq_plugins.lab.commands import benchmark
from fairseq_plugins.serving.folder import Export
from tests.lab.benchmarks.test_train_step import SIZES, measure, refused

ONE, TWO = [headline.what for headline in speed.HEADLINES[:2]]


def test_every_headline_can_be_measured(tmp_path):
    assert {headline.measurement for headline in speed.HEADLINES} == set(speed.MEASUREMENTS)
    assert len({headline.what for headline in speed.HEADLINES}) == len(speed.HEADLINES)
    for headline in speed.HEADLINES:
        measurement = speed.MEASUREMENTS[headline.measurement]
        command, *words = measurement.command(tmp_path)
        parser = argparse.ArgumentParser()
        benchmark.find(command).add_arguments(parser)
        parser.parse_args(words)
        places = headline.row, headline.against
        assert len(set(places)) == 2 and max(places) < len(measurement.contenders)


def test_every_ratio_of_the_readme_is_a_headline():
    page = (machine.ROOT / "README.md").read_text(encoding="utf-8")
    table = page.split("\n## Speed\n")[1].split("\n## ")[0]
    rows = [line.split(" | ")[0].lstrip("| ") for line in table.splitlines() if line[:2] == "| "]
    assert rows[0] == "what" and len(rows) > 7
    assert set(rows[2:]) <= {headline.what for headline in speed.HEADLINES}


def figure(ratio, low, high):
    return {"ratio": ratio, "quartiles": [low, high]}


@pytest.mark.parametrize(
    "found, stored, verdict",
    [
        (figure(0.8, 0.7, 0.9), figure(0.7, 0.65, 0.7), "as stored"),  # within its own spread
        (figure(0.8, 0.8, 0.8), figure(0.7, 0.6, 0.75), "as stored"),  # within the stored one
        (figure(0.72, 0.72, 0.72), figure(0.7, 0.7, 0.7), "as stored"),  # runs differ by as much
        (figure(0.8, 0.8, 0.8), figure(0.7, 0.7, 0.71), "worse: 0.800, stored 0.700, spread 0.040"),
        (figure(0.5, 0.5, 0.5), figure(0.7, 0.7, 0.71), "better: 0.500, stored 0.700"),
        (figure(0.5, 0.5, 0.5), None, "recorded"),
        (None, figure(0.7, 0.7, 0.71), "not measured"),
    ],
)
def test_a_ratio_is_worse_beyond_the_spread(found, stored, verdict):
    row = speed.compare("step", found, stored)
    assert row["verdict"].startswith(verdict)
    assert row["worse"] == verdict.startswith("worse")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(words..., times) -> the rows, with these times of the contenders of one measurement."""
    monkeypatch.setattr(speed, "_write_data", lambda folder: None)
    monkeypatch.setattr(cpu, "has_bf16", lambda: True)

    def go(*words, times, call=measure, only=("training_step",)):
        def measured(measurement, path, args, device):
            rows = [{"seconds": [own, own]} for own in times]
            path.write_text(json.dumps({"rows": rows[: len(measurement.contenders)]}))
            return True

        monkeypatch.setattr(goals, "measure", measured)
        words = ["speed", "--out", tmp_path, "--stored", tmp_path / "stored", *words]
        words += ["--only", *only]
        return call(tmp_path, *words)["rows"] if call is measure else call(*words)

    return go


def stored_in(folder):
    (path,) = folder.glob("*.json")
    return {what: each["ratio"] for what, each in json.loads(path.read_text())["figures"].items()}


def test_a_run_that_is_worse_fails_and_changes_no_stored_figure(run, tmp_path, capsys):
    rows = run(times=[1.0, 0.7, 0.4])
    assert [row["verdict"] for row in rows] == ["recorded", "recorded"]
    assert stored_in(tmp_path / "stored") == {ONE: 0.7, TWO: 0.4}
    assert [row["verdict"] for row in run(times=[2.0, 1.4, 0.8])] == ["as stored"] * 2
    said = run(times=[1.0, 0.9, 0.4], call=refused)
    assert ONE in said and TWO not in said and "0.900, stored 0.700" in said and "--record" in said
    assert "| 0.900 |" in capsys.readouterr().out
    assert stored_in(tmp_path / "stored") == {ONE: 0.7, TWO: 0.4}
    run("--record", times=[1.0, 0.9, 0.4])
    assert stored_in(tmp_path / "stored") == {ONE: 0.9, TWO: 0.4}


def test_a_run_that_is_stopped_keeps_what_it_measured(run, tmp_path, monkeypatch):
    real = speed._measure

    def stopped(name, *rest):
        if name == "training_step":
            return real(name, *rest)
        raise KeyboardInterrupt

    monkeypatch.setattr(speed, "_measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(times=[1.0, 0.7, 0.4], only=["training_step", "mscffn"])
    assert stored_in(tmp_path / "stored") == {ONE: 0.7, TWO: 0.4}


def test_each_kind_of_processor_has_its_figures(run, tmp_path, monkeypatch):
    run(times=[1.0, 0.7, 0.4])
    monkeypatch.setattr(machine, "cpu_kind", lambda: "Another (R) with avx2")
    assert run(times=[1.0, 0.9, 0.4])[0]["verdict"] == "recorded"
    assert (tmp_path / "stored" / "another_r_with_avx2.json").is_file()
    assert len(list((tmp_path / "stored").iterdir())) == 2


def test_what_cannot_be_measured_is_left_out_and_the_rest_compared(run, monkeypatch):
    monkeypatch.setattr(cpu, "has_bf16", lambda: False)
    first, second = run(times=[1.0, 0.7, 0.4])
    assert first["time_ratio"] == 0.7 and second["verdict"] == "not measured"


def test_contenders_without_a_folder_keep_the_places_of_the_others(tmp_path, monkeypatch):
    asked = []

    def measured(measurement, path, args, device):
        asked.extend(measurement.contenders)
        path.write_text(json.dumps({"rows": [{"seconds": [n]} for n in (1, 2, 3)]}))
        return True

    monkeypatch.setattr(goals, "measure", measured)
    missing = dict.fromkeys([words for words in speed.EXPORTS if words[0] == "c"], "no package")
    rows = speed._measure("serving_1", argparse.Namespace(out=tmp_path), missing)
    assert asked[1:] == [f"export:{tmp_path}/full", f"export:{tmp_path}/small"]
    assert [row.get("seconds") for row in rows] == [[1], [2], None, [3], None]
    against_torch = [h for h in speed.HEADLINES if h.measurement == "serving_1" and h.against == 0]
    assert [speed.ratio_of(each, rows)["ratio"] for each in against_torch] == [2]
    ordinary = [h for h in speed.HEADLINES if h.measurement == "serving_1" and h.against != 0]
    assert [speed.ratio_of(each, rows) for each in ordinary] == [None, None]


@pytest.mark.parametrize("kind", ["export", "ctranslate2"])
def test_a_training_in_the_place_of_an_export_is_kept(tmp_path, kind):
    checkpoint = tmp_path / "full" / "checkpoint_last.pt"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    words = f"transformer_ftc --encoder-blocks 1,1 {SIZES}"
    with pytest.raises(ConfigurationError, match="full holds checkpoints, which are kept: choose"):
        exports.write_untrained(f"{kind}:{tmp_path}/full", words, tmp_path)
    assert checkpoint.exists()


def test_data_and_exports_are_made_up(tmp_path, monkeypatch):
    data = tmp_path / "data"
    speed._write_data(data)
    for side in ("de", "en"):
        assert len((data / f"dict.{side}.txt").read_text().splitlines()) == 9996
        assert len((data / "text" / f"test.{side}").read_text().splitlines()) == 400
    speed._write_data(data)  # what is there stays
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "older").touch()  # which is replaced
    words = f"transformer_ftc --encoder-blocks 1,1 {SIZES}"
    exports.write_untrained(f"export:{tmp_path}/tiny", words, data)
    assert len(Export(tmp_path / "tiny").target.words) == 10000
    assert not (tmp_path / "tiny" / "older").exists()
    task = SimpleNamespace(source_dictionary=SimpleNamespace(pad=lambda: 1))
    batches = [{"net_input": {"src_tokens": torch.tensor([[5, 6, 2]])}, "target": torch.ones(1, 4)}]
    args = argparse.Namespace(beam=4, threads=1, free_length=False)
    beams = []
    monkeypatch.setattr(exports, "search", lambda export, sources, how: beams.append(how.beam))
    for options in ("", " --beam 2"):
        exports.searcher(f"export:{tmp_path}/tiny{options}", task, args, batches)(0)
    assert beams == [4, 2]
    for options in (" --beam 0", " --beam", " --int8"):
        with pytest.raises(ConfigurationError, match="the only option is --beam"):
            exports.searcher(f"export:{tmp_path}/tiny{options}", task, args, batches)
