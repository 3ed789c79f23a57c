"""Sweeps: how tables are read, what is trained, kept and compared, and what the report shows."""

import json
import re

import pytest

from fairseq_plugins.cli import sweep as command
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.train import history, sweep, sweep_table
from fairseq_plugins.train.jobs import Jobs
from tests.lab.reproduction.conftest import data  # noqa: F401

TABLE = """
title: Windows
recipe: transformer_ftc
options: >-
  --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2
  --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 --decoder-attention-heads 2
  --decoder-layers 1
seeds: [1, 2]
rows:
  transformer: {recipe: transformer}
  ftc:
grid:
  --time-window: [4]
  --feature-window: [2, 4]
"""
GRID = [f"time-window=4,feature-window={window}" for window in (2, 4)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "windows.yaml"
    path.write_text(TABLE)
    return path


def test_rows_are_listed_and_combined(table):
    found = sweep_table.read_table(table)
    assert [row.name for row in found.rows] == ["transformer", "ftc", *GRID]
    assert found.rows[0].recipe == "transformer" and found.rows[1].recipe == "transformer_ftc"
    assert found.rows[3].options == "--time-window 4 --feature-window 4"
    runs = [(row.name, seed) for row, seed in found.choose_runs(["ftc", GRID[0]], [])]
    assert runs == [("ftc", 1), (GRID[0], 1), ("ftc", 2), (GRID[0], 2)]
    listed = found._replace(runs=[("ftc", 3)])
    runs = [(row.name, seed) for row, seed in listed.choose_runs(["transformer", "ftc"], [])]
    assert runs == [("ftc", 3), ("transformer", 1)]
    with pytest.raises(ConfigurationError, match="--rows fct is not a row: did you mean ftc"):
        found.choose_rows(["fct"])


@pytest.mark.parametrize(
    "text, message",
    [
        ("[1]", "give `recipe`, and `rows` or `grid`"),
        ("recipe: transformer", "give `rows`, by their names, or `grid`"),
        ("rows: {a: }", "row a has no `recipe`"),
        ("rows: {a: }\nrecipes: b", "recipes is unknown: did you mean recipe"),
        ("recipe: b\nrows: {a: {option: c}}", "row a: option is unknown: did you mean options"),
        ("recipe: b\nrows: {../a: }", "row '../a': the name becomes a folder"),
        ("recipe: b\nrows: {a: 3}", "row a: give its options"),
        ("recipe: b\ngrid: {--lr: 3}", "grid --lr: give a list"),
        ("recipe: b\nrows: {a: }\nseeds: 3", "seeds 3: give a list"),
        ("recipe: b\nrows: {a: }\nseeds: []", "seeds []: give one or more"),
        ("recipe: b\nrows: {a: }\naverage: x", "average 'x': give a whole number"),
        ("recipe: 3\nrows: {a: }", "row a: recipe 3: give text"),
        ("recipe: b\nrows: {a: {labels: 3}}", "row a: labels 3: give a list"),
        ("recipe: b\nrows: {a: }\noptions: 3", "options 3: give text"),
        ("recipe: b\nrows: {a: '--lr \"1'}", "row a: options '--lr \"1': No closing quotation"),
        ("recipe: b\nrows: {a: --seed 3}", "row a: options: --seed: give `seeds` to the table"),
        (
            "recipe: b\nrows:\n  a:\n  a: --lr 1",
            "read: it gives a 2 times: remove all but",
        ),
        ("rows: {", "cannot be read"),
    ],
)
def test_mistakes_in_a_table_are_one_line(tmp_path, text, message):
    path = tmp_path / "table.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(message)) as error:
        sweep_table.read_table(path)
    assert "\n" not in str(error.value)


@pytest.fixture
def run(table, data, tmp_path, monkeypatch):  # noqa: F811
    """run(*words) does all but train and translate; `done` has what was asked for."""

    def job(self, words, log, say, gpus=()):
        name, *words = words[3:]
        if name == "evaluate":
            folder = type(tmp_path)(words[1])
            test = folder / "evaluation" / "test-checkpoint_best-beam5"
            test.mkdir(parents=True, exist_ok=True)
            run.done.append(f"test {folder.name}")
            scores = {"BLEU": {"score": 20.0 + len(run.done), "signature": "tok:13a"}}
            found = {"checkpoints": ["checkpoint_best.pt"], "scores": scores}
            (test / "scores.json").write_text(json.dumps(found))
            if "--compare" in words:
                run.done[-1] = f"compare {folder.name}"
                found = {"scores": {"BLEU": {"p": 0.25}}}
                base = type(tmp_path)(words[words.index("--compare") + 1]).name
                (test / f"against-{base}.json").write_text(json.dumps(found))
            return
        folder = type(tmp_path)(words[words.index("--save-dir") + 1])
        run.done.append(f"train {folder.name}")
        if folder.name in run.fails:
            log.touch()
            raise ConfigurationError("no memory")
        (folder / "checkpoint_best.pt").touch()
        for update, seconds in ((10, 1), (150, 2), (200, 2)):
            history.add(folder, update=update, per_epoch=50, seconds=seconds)

    monkeypatch.setattr(Jobs, "run", job)
    monkeypatch.setattr(sweep.Run, "check_same", lambda self, settings: {})

    def run(*words):
        run.done = []
        words = [table, data, "--out", tmp_path / "out", "--cpu", "--threads", 1, *words]
        status = command.main(list(map(str, words)))
        return status, (tmp_path / "out" / "table.md").read_text()

    run.fails = ()
    return run


def test_runs_are_trained_tested_compared_and_kept(run, tmp_path):
    status, table = run("--seeds", 1, "--rows", "transformer", "ftc")
    assert table.splitlines()[0] == "Windows"
    runs = ["transformer-seed1", "ftc-seed1"]
    made = [f"{what} {name}" for name in runs for what in ("train", "test")]
    assert status == 0 and run.done == [*made, "compare ftc-seed1"]
    record = json.loads((tmp_path / "out/runs/ftc-seed1/result.json").read_text())
    assert record["training"]["updates"] == 200 and record["training"]["seconds"] == 2.0
    assert record["training"]["operations"] > record["training"]["parameters"] > 1000
    rows = {line.split(" | ")[0][2:]: line for line in table.splitlines() if line[:2] == "| "}
    assert re.fullmatch(
        r"\| ftc \| 2\d\.00 \| 0.250 \| 0.\d\d \| 0.\d{3} \| 2 \| 200 \|", rows["ftc"]
    )
    assert " | 1.000 | " in rows["transformer"] and rows[GRID[0]].endswith("| - | - | - | - | - |")
    assert (tmp_path / "out/scores.svg").is_file()

    assert run("--seeds", 1, "--rows", "transformer", "ftc")[0] == 0 and run.done == []

    # one more seed, of which one run fails: what is finished is kept, and the others stand
    run.fails = ["ftc-seed2"]
    with pytest.raises(ConfigurationError, match="failed: ftc-seed2: .*no memory"):
        run("--seeds", 1, 2, "--rows", "transformer", "ftc")
    assert "train ftc-seed1" not in run.done and "test ftc-seed1" not in run.done
    table = (tmp_path / "out/table.md").read_text()
    assert "Failed: ftc-seed2" in table and "rerun to resume: ftc-seed2" in table
    assert re.search(r"\| transformer \| \d+\.\d\d ± \d\.\d\d \(2\) ", table)


def test_options_that_the_runs_set_and_other_tables_are_refused(run, table):
    for words, message in (
        (["--", "--time-window", 8], "--time-window: rows set it"),
        (["--", "--seed", 8], "--seed: use --seeds"),
        (["--rows", "ftc", "--", "--lrr", 8], r"row ftc \(no options\): fairseq-train does not"),
        (["--generate", "--lenpenn 1"], "fairseq-generate does not take --lenpenn"),
        (["--generate", "--beam"], "for --generate, write --generate=--beam"),
        (["--report-only"], "--report-only: --out .* has no results.json"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            run("--seeds", 1, *words)
    run("--seeds", 1, "--rows", "ftc")
    table.write_text(TABLE.replace("Windows", "Others"))
    with pytest.raises(ConfigurationError, match="has runs with another title: choose another"):
        run("--seeds", 1, "--rows", "ftc")


def test_slurm_gets_a_job_for_each_row(table, tmp_path, monkeypatch, capsys):
    (tmp_path / "sbatch").write_text('#!/bin/sh\nfor w in "$@"; do echo "<$w>"; done\n')
    (tmp_path / "sbatch").chmod(0o755)
    words = [
        str(table),
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
        "--slurm",
        "--gpus 1",
        "--",
        "--fp16",
    ]
    with pytest.raises(ConfigurationError, match="has no dictionaries"):
        command.main(words)
    (tmp_path / "dict.de.txt").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "out"))
    with pytest.raises(ConfigurationError, match="there is no sbatch"):
        command.main(words)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert command.main(words) == 0
    said = capsys.readouterr().out
    assert said.count("<--wrap>") == 4 and "<--gpus>\n<1>" in said
    assert (
        "--rows ftc " in said
        and said.count(" -- --fp16>") == 4
        and "--slurm" not in said.replace(".slurm.log", "")
    )
