"""Tables of rows: what is trained, kept, resumed and timed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairseq_plugins import files
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import evaluate
from fairseq_plugins.evaluate.translation import TOKENISED_BLEU
from fairseq_plugins.lab.commands import reproduce
from fairseq_plugins.lab.reproduction import jobs, plans, runs
from tests.lab.reproduction.conftest import cells, log_line, make, train_here

VALIDATIONS = "".join(
    f"2026-01-01 00:00:00 | INFO | valid | epoch 00{epoch} | valid on 'valid' subset | loss 6.1 | "
    f"nll_loss {nll} | ppl 40 | bleu {bleu} | wps 9 | wpb 7 | bsz 3 | num_updates {epoch * 10} | "
    f"best_bleu {bleu}\n"
    for epoch, nll, bleu in ((1, 5.25, 11.5), (2, 4.75, 10.25))
)


# --- what is kept, and what is done again ---------------------------------------------------------


@pytest.fixture
def repeat(data, settings, tmp_path, monkeypatch):
    """repeat(*words) does all but train and translate; returns what it would have done."""
    done = []

    def run(todo, words, log):
        folder = todo.save_dir
        if folder.name in again.stuck:
            log.write_text("# now\n# words\n" + log_line(1, 10) + VALIDATIONS)
            again.timer.function()
            raise KeyboardInterrupt
        if folder.name == "ftc-2x3-seed2":
            raise ConfigurationError(f"{todo.name}: training failed: RuntimeError: no memory")
        # fairseq takes the last of two values
        updates = [after for word, after in zip(words, words[1:]) if word == "--max-update"][-1]
        done.append(f"train {folder.name} {updates}")
        for name in ("1", "2", "_last"):
            (folder / f"checkpoint{name}.pt").touch()
        lines = [log_line(1, 10), log_line(2, int(updates))]
        log.write_text("# now\n# words\n" + "".join(lines))

    def score(request, say, check_stop):
        done.append(f"test {request.run.name} {request.label}")
        scores = {TOKENISED_BLEU: {"score": 20.0 + len(done), "signature": "tok:none"}}
        assert list(request.settings) == [] and list(request.words) == []
        return evaluate.System("", request.run, None, None, scores)

    class Timer:
        def __init__(self, seconds, function):
            again.timer, self.seconds, self.function = self, seconds, function
            self.started = False

        def start(self):
            self.started = True

        def cancel(self):
            pass

    monkeypatch.setattr(runs.threading, "Timer", Timer)
    train_here(monkeypatch, run)
    monkeypatch.setattr(evaluate, "evaluate", score)
    monkeypatch.setattr(plans, "count_parameters", lambda given: 2_000_000)  # builds a model

    def again(*words):
        done.clear()
        start = ["--settings", settings, "--rows", "transformer", "ftc-2x3", "--timing-skip", 0]
        made = make(data, tmp_path / "out", *start, *words)
        again.said, made.say = [], lambda line: again.said.append(line)
        made.finish_all()
        return list(done), made

    again.stuck = set()  # names of runs that train until the time is up
    return again


def test_finished_runs_are_kept_and_unfinished_ones_done(repeat, tmp_path):
    best = "checkpoint_best"
    tests = [f"test transformer-seed1 {best}", f"test ftc-2x3-seed1 {best}"]
    done, made = repeat("--max-update", 20)
    assert done == ["train transformer-seed1 20", tests[0], "train ftc-2x3-seed1 20", tests[1]]
    assert not made.failures
    path = tmp_path / "out" / "runs" / "ftc-2x3-seed1" / "result.json"
    training = json.loads(path.read_text())["training"]
    assert training["updates"] == 20 and training["step_seconds"] == [2.0]
    assert training["epoch_seconds"] == 100.0 and training["parameters"] > 1e5

    # another seed, one run of which fails: told, and the others stand
    done, made = repeat("--max-update", 20, "--seeds", 1, 2)
    assert done[2:] == ["train transformer-seed2 20", f"test transformer-seed2 {best}"]
    (failure,) = made.failures
    assert failure["run"] == "ftc-2x3-seed2" and "RuntimeError: no memory" in failure["message"]
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "Failed: ftc-2x3-seed2: transformer_ftc: training failed: RuntimeError" in table
    assert "Seeds differ: transformer 1, 2; ftc-2x3 1." in table
    assert re.search(r"^\| Transformer .* \d+\.\d\d ± \d\.\d\d \(2\) ", table, re.MULTILINE)

    # longer: trained on; shorter: there already; tested in another way: only tested
    assert repeat("--max-update", 30)[0][0] == "train transformer-seed1 30"
    assert sorted(repeat("--max-update", 25, "--parallel", 4)[0]) == sorted(tests)
    assert json.loads(path.read_text())["training"]["parallel"] == 1  # nothing was left to train
    assert repeat("--max-update", 40, "--parallel", 4)[0][0].startswith("train ")
    assert repeat("--max-update", 50)[0][0].startswith("train ")
    assert json.loads(path.read_text())["training"]["parallel"] == 4  # in a part of its training
    assert repeat("--max-update", 30, "--average", 2)[0] == [
        test.replace(best, "last2") for test in tests
    ]
    # a run that was ended early has fewer: the average of those, which the table tells
    assert repeat("--max-update", 30, "--average", 3)[0] == [
        test.replace(best, "last2") for test in tests
    ]
    told = "checkpoints of epochs or updates: 2 of the 3 to average, so their average is tested"
    assert any(line.endswith(told) for line in repeat.said)
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "the average of the last 2 checkpoints" in table

    # other settings do not get into the same table
    with pytest.raises(ConfigurationError, match=r"row transformer .*--lr was \[0.0005\], is"):
        repeat("--", "--lr", "1")
    with pytest.raises(ConfigurationError, match="has runs of full size: choose another folder"):
        repeat("--reduced")
    path = tmp_path / "out" / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    for part, value in (("pairs", {"train": 1}), ("fingerprint", "0"), ("held_out", "0")):
        path.write_text(json.dumps({**results, "data": {**results["data"], part: value}}))
        with pytest.raises(ConfigurationError, match="has runs on other data: choose another"):
            repeat()
    path.write_text(json.dumps({**results, "table": "translation"}))
    with pytest.raises(ConfigurationError, match="has the table translation: choose another"):
        repeat()
    path.write_text('{"rows": []}')
    with pytest.raises(ConfigurationError, match="results.json is not of this command"):
        repeat()


def test_an_unexpected_error_of_a_run_leaves_the_others(repeat, monkeypatch):
    def out_of_memory(self, row, seed, *rest):
        self.out.mkdir(exist_ok=True)
        raise RuntimeError(f"no memory for {row.name}")

    monkeypatch.setattr(runs.Reproduction, "finish", out_of_memory)
    _, made = repeat("--max-update", 20)
    assert [failure["message"] for failure in made.failures] == [
        "RuntimeError: no memory for transformer",
        "RuntimeError: no memory for ftc-2x3",
    ]


def test_the_timing_of_steps_ends_with_the_call(data, settings, tmp_path, monkeypatch):
    words = ["--settings", settings, "--rows", "transformer", "ftc-2x3", "--minutes", 60]
    made, said = make(data, tmp_path / "out", *words), []
    made.say = said.append
    done = {"seed": 1, "training": {"updates_per_epoch": 9}}
    trained = [{"row": row.name, **done} for row in made.rows]
    monkeypatch.setattr(made, "runs", lambda: trained)

    def run(self, *rest):
        deadline = time.monotonic() + 1200
        while not self._stopping.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs.Jobs, "run", run)
    made.end = time.monotonic()
    made.measure_interleaved()
    assert made.time_is_up.is_set() and not made.failures
    assert said[-1] == "time ratio: not finished; it begins again with the next call"
    assert not (tmp_path / "out" / "interleaved.json").exists()


def test_a_row_that_is_to_train_on_is_not_finished(repeat, tmp_path):
    """Its score is that of less training."""
    assert repeat("--max-update", 20)[1].unfinished() == []
    repeat.stuck.add("ftc-2x3-seed1")
    made = repeat("--max-update", 50, "--minutes", 60)[1]
    assert [run["run"] for run in made.unfinished()] == ["ftc-2x3-seed1"]
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "| ftc-2x3-seed1 | " in table.split("Not finished. Rerun to resume:")[1]


def test_all_places_of_a_training_are_remembered(repeat, tmp_path):
    record = tmp_path / "out" / "runs" / "transformer-seed1" / "result.json"
    for updates, threads, earlier in ((20, 1, []), (50, 2, [1]), (90, 2, [1]), (99, 1, [2])):
        repeat("--max-update", updates, "--threads", threads)
        training = json.loads(record.read_text())["training"]
        assert training["machine"]["threads"] == threads
        assert [place["machine"]["threads"] for place in training["earlier_places"]] == earlier
    assert training["earlier_places"][0]["processes"] == training["processes"] == 1


def test_runs_with_other_options_are_named(repeat, tmp_path):
    repeat("--max-update", 20)
    record = tmp_path / "out" / "runs" / "ftc-2x3-seed1" / "result.json"
    run = json.loads(record.read_text())
    assert run["options"] == str(tmp_path / "tiny.yaml")
    record.write_text(json.dumps({**run, "options": "--lr 1"}))
    repeat("--max-update", 20)
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    told = "was trained with other options than those of the settings below: `--lr 1`."
    assert table.count(f"ftc-2x3, seed 1, {told}") == table.count("with other options") == 1


def test_when_the_time_is_up_the_table_says_how_far_each_run_is(repeat, tmp_path):
    repeat.stuck.add("ftc-2x3-seed3")
    words = ["--max-update", 20, "--seeds", 3]
    done, made = repeat(*words, "--minutes", 60)
    assert done == ["train transformer-seed3 20", "test transformer-seed3 checkpoint_best"]
    assert repeat.timer.started and 3000 < repeat.timer.seconds <= 3600
    assert made.time_is_up.is_set() and not made.failures
    made.write_results()
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "Not finished. Rerun to resume:" in table
    assert cells(table, "ftc-2x3-seed3") == ["1", "20", "10.25", "11.50", "4.75", "4.75"]

    repeat.stuck.clear()
    done, made = repeat(*words)
    assert not repeat.timer.started
    assert done[0] == "test transformer-seed3 checkpoint_best"  # the fake one keeps nothing
    assert done[1] == "train ftc-2x3-seed3 20" and not made.time_is_up.is_set()
    assert "Not finished" not in (tmp_path / "out" / "table.md").read_text(encoding="utf-8")


def test_a_row_begins_with_other_data(data, tmp_path, monkeypatch):
    trained = []
    reach = {"first": 10, "ftc_both-seed1": 0}

    def run(todo, words, log):
        data, folder, words = words[0], todo.save_dir, dict(zip(words, words[1:]))
        schedule = (words["--lr"], words["--lr-scheduler"], words["--max-update"])
        trained.append((data, folder, words.get("--finetune-from-model"), schedule))
        log.write_text("# now\n# words\n" + log_line(1, reach[folder.name]))
        if not reach[folder.name]:
            raise ConfigurationError("training failed")

    score = {"score": 20.0, "signature": "tok:none"}
    scores = {TOKENISED_BLEU: score, "BLEU": score, "chrF2": score}
    system = evaluate.System("", tmp_path, None, None, scores)
    train_here(monkeypatch, run)
    monkeypatch.setattr(evaluate, "evaluate", lambda *args, **more: system)
    both, folder = tmp_path / "data" / "both-directions", tmp_path / "runs" / "ftc_both-seed1"
    stages = [
        (str(both), folder / "first", None, ("5e-3", "inverse_sqrt", "8000")),
        (
            *(str(data), folder, str(folder / "first" / "checkpoint_best.pt")),
            ("2e-3", "polynomial_decay", "3500"),
        ),
    ]

    said = []

    def repeat(*words, train=True):
        trained.clear()
        said.clear()
        made = make(data, tmp_path, "--rows", "ftc_both", *words, table="multi30k")
        made.say = said.append
        if train:
            made.finish_all()
        made.write_results()
        return (tmp_path / "table.md").read_text(encoding="utf-8")

    assert "| ftc_both-seed1 | 1 | 0 |" in repeat() and trained == stages
    assert json.loads((both / "preparation.json").read_text())["settings"]["bidirectional"]
    (folder / "train.log").unlink()
    assert "| ftc_both-seed1, other data | 1 | 10 |" in repeat(train=False)
    reach["ftc_both-seed1"] = 20
    (folder / "first" / "checkpoint_last.pt").touch()
    table = repeat()
    assert trained == stages[1:]  # the first training is finished
    assert "ftc_both was trained before on other data (both-directions), for 10 updates" in table
    assert re.search(r"^\| FTC, both directions first .* 20 \|$", table, re.MULTILINE)

    # trained on, it does not read the first model again, and its own length stays
    (folder / "checkpoint_last.pt").touch()
    repeat()
    assert trained == [] and "first stage" not in "".join(said)
    repeat("--max-update", 10000)
    assert trained == [] and "trained with another length and is kept" in "".join(said)
    (folder / "finished").unlink()
    shutil.rmtree(str(folder / "first"))  # to have room
    assert "(both-directions), for 10 updates" in repeat("--max-update", 10000)
    assert trained == stages[1:]


def test_rows_of_recipes_are_trained_and_timed_as_they_say(data, settings, tmp_path, monkeypatch):
    words = ["--settings", settings, "--rows", "transformer,ftc_simcut,ftc_mscffn"]
    made = make(data, tmp_path, *words, table="translation")
    command = made.plan(made.rows[1], 2).command
    for option, value in (
        ("--criterion", "label_smoothed_cross_entropy_simcut"),
        ("--patience", "10"),
        ("--keep-last-epochs", "10"),
        ("--seed", "2"),
    ):
        assert [b for a, b in zip(command, command[1:]) if a == option][-1] == value
    started = []

    def run(command, log, on_line):
        started.append(command)
        log.write_text("# now\n# words\nRuntimeError: no memory\n")
        return 1

    monkeypatch.setattr(made.jobs, "run", run)
    done = {"seed": 2, "training": {"updates_per_epoch": 5}}
    monkeypatch.setattr(made, "runs", lambda: [{"row": row.name, **done} for row in made.rows])
    plan, seeds = made.plan, []
    monkeypatch.setattr(made, "plan", lambda row, seed: seeds.append(seed) or plan(row, seed))
    made.measure_interleaved()
    assert set(seeds) == {2}  # in the precision of the runs that were trained
    archs = [word.split("=", 1)[1].split() for word in started[0] if word.startswith("--arch=")]
    assert archs[0] == ["transformer_iwslt_de_en"]
    (common,) = [word for word in started[0] if word.startswith("--options=")]
    assert "--max-tokens-valid 16384" in common  # settings of the table
    assert "--encoder-ffn-embed-dim 128" in common and "--eval" not in common
    assert archs[1][1:] == ["--criterion", "label_smoothed_cross_entropy_simcut"]
    assert archs[2][1:] == ["--encoder-ffn", "mscffn", "--decoder-ffn", "mscffn"]
    assert "the benchmark failed" in made.failures[0]["message"]


@pytest.fixture
def timing_of(data, tmp_path, monkeypatch):
    """timing_of(table, *words): the options of all rows, those of each, and the reproduction."""

    def words_of(table, *words):
        made = make(data, tmp_path, *words, table=table)
        started = []
        monkeypatch.setattr(made.jobs, "run", lambda command, *more: started.append(command) or 1)
        done = {"seed": 1, "training": {"updates_per_epoch": 5}}
        monkeypatch.setattr(made, "runs", lambda: [{"row": row.name, **done} for row in made.rows])
        monkeypatch.setattr(runs, "failure_in", lambda *log: "it was not run")
        made.measure_interleaved()
        (common,) = [word for word in started[0] if word.startswith("--options=")]
        return common, [word for word in started[0] if word.startswith("--arch=")], made

    return words_of


def test_settings_that_turn_options_off_count_for_the_timing_too(timing_of, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("model:\n  share_decoder_input_output_embed: false\n  encoder_ffn: null\n")
    words = ["--settings", path, "--rows", "transformer,ftc_mscffn"]
    common, archs, made = timing_of("translation", *words)
    assert "--share-decoder-input-output-embed" not in made.plan(made.rows[0], 1).command
    assert "--label-smoothing" in common and "--share-decoder" not in common
    assert "--decoder-ffn mscffn" in archs[1] and "--encoder-ffn" not in archs[1]


@pytest.mark.parametrize("where", ["in a file", "after --"])
def test_options_of_the_command_line_are_timed_too(timing_of, tmp_path, where):
    given = ["--clip-norm", "2", "--eval-bleu-print-samples"]
    (tmp_path / "own.args").write_text(" ".join(given))
    words = ["--settings", tmp_path / "own.args", "--rows", "transformer,ftc"]
    if where == "after --":
        words = [*words[2:], "--", *given]
    common, _, made = timing_of("translation", *words)
    assert made.plan(made.rows[1], 1).given.clip_norm == 2.0
    assert common.split().count("--clip-norm") == 1 and "--clip-norm 2" in common
    assert "--eval" not in common


def test_the_timing_is_of_the_training_that_is_tested(timing_of):
    _, archs, _ = timing_of("low-resource", "--rows", "transformer,ftc_both,ftc_both_simcut")
    criteria = [word.split("--criterion label_smoothed_cross_entropy_")[-1] for word in archs]
    assert criteria == ["fused", "fused", "simcut"]


def test_runs_side_by_side_have_gpus_of_their_own(repeat, monkeypatch):
    seen = {}

    def finish(self, row, seed, jobs, say):
        self.out.mkdir(exist_ok=True)
        seen[row.name, seed] = tuple(jobs._gpus)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # of tests/conftest.py
    monkeypatch.setattr(runs.Reproduction, "finish", finish)
    repeat("--parallel", 2, "--processes", 2)
    assert set(seen.values()) == {()}  # on a CPU

    monkeypatch.setattr(runs.torch.cuda, "device_count", lambda: 3)
    _, made = repeat("--parallel", 1, "--seeds", 1, 2)
    made.cpu = False
    assert [made.gpus(place) for place in range(4)] == [[0], [1], [2], [0]]
    made.request = made.request._replace(processes=2, parallel=2)
    assert [made.gpus(place) for place in range(2)] == [[0, 1], [2, 0]]
    made.finish_all()
    assert len(seen) == 4 and set(seen.values()) <= {(0, 1), (2, 0)} and (0, 1) in seen.values()


# --- the real thing -------------------------------------------------------------------------------


def newest_update(run: Path) -> int:
    """The update of the newest checkpoint that carries one in its name, or 0."""
    names = [path.stem for path in run.glob("checkpoint_*_*.pt")]
    return max([int(name.rsplit("_", 1)[1]) for name in names], default=0)


@pytest.mark.slow
def test_a_killed_row_resumes_and_is_tested(data, settings, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["ftc", data, "--out", out, "--cpu", "--settings", settings, "--timing-skip", "6"]
    words += ["--rows", "ftc-2x3", "--threads", "1"]
    words += ["--generate", "--max-len-b 12", "--time-rounds", "1"]
    own = ["--", "--log-interval", "2", "--save-interval-updates", "6", "--encoder-embed-dim", "16"]
    words = list(map(str, words))
    endless = ["--max-update", "1000000"]  # however late the kill comes, the training is not over
    process = subprocess.Popen(
        [sys.executable, "-m", "fairseq_plugins", "reproduce", *words, *endless, *own],
        env=dict(os.environ, OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    first = out / "runs" / "ftc-2x3-seed1"
    while newest_update(first) < 12:  # checkpoint_last.pt is written after it: it has 6 or more
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()  # its training goes with it
    output, _ = process.communicate(timeout=1200)
    assert process.returncode == -signal.SIGKILL, output
    kept = json.loads((first / "result.json").read_text())
    assert kept.pop("parallel") == len(kept.pop("places")) == 1 and not kept

    with files.alone_in(first, "training", patience=1200):  # the training is gone
        updates = newest_update(first) + 12
    assert reproduce.main([*words, "--max-update", str(updates), *own]) == 0
    output = capsys.readouterr().out
    resumed = re.search(r"ftc-2x3 seed 1: resumed from update ([\d,]+)", output).group(1)
    assert int(resumed.replace(",", "")) >= 6

    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    (run,) = results["rows"][8]["runs"]
    assert run["training"]["updates"] == updates and run["training"]["epoch_seconds"] > 0
    assert "tok:none|smooth:none" in run["scoring"]["scores"]["BLEU"]["signature"]
    assert not results["failures"] and not list(out.glob("**/*.part"))

    # table and plot come from results.json alone
    table = (out / "table.md").read_text(encoding="utf-8")
    assert table in output
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(str(out / "results.json"), str(elsewhere))
    assert reproduce.main(["ftc", "--report-only", "--out", str(elsewhere)]) == 0
    assert (elsewhere / "table.md").read_text(encoding="utf-8") == table
