"""All rows of TransformerFTC's tables: what is read, kept, gone on with, refused and reported."""

import contextlib
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import pytest

from fairseq_plugins.errors import ConfigurationError
from scripts import reproduce_ftc
from scripts import reproduce_ftc_report as report
from tests.conftest import ROOT

SCRIPT = ROOT / "scripts" / "reproduce_ftc.py"
TINY = """
# comments and 'quoted values' are read
--encoder-embed-dim 128 --decoder-embed-dim 16
--encoder-ffn-embed-dim 128 --decoder-ffn-embed-dim 32
--decoder-layers 1 --max-tokens 400 --warmup-updates 4
--adam-betas '(0.9, 0.98)'
"""


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "tiny.args"
    path.write_text(TINY)
    return path


@contextlib.contextmanager
def reproduction(data, out, *words):
    words = [data, "--out", out, "--cpu", *words]
    with reproduce_ftc.claimed(out) as lock:
        yield reproduce_ftc.Reproduction(reproduce_ftc.read_arguments(list(map(str, words))), lock)


# --- rows and the command line --------------------------------------------------------------------


def test_rows_are_what_the_tables_name():
    assert len({row.name for row in reproduce_ftc.ROWS}) == 13
    for row in reproduce_ftc.ROWS:
        blocks, layers = map(int, row.blocks.split("x"))
        if blocks > 1:
            assert f"--encoder-blocks {','.join([str(layers)] * blocks)}" in row.words
        assert ("--feature-window 4" in row.words) == (row.pooling == "4")
        assert ("linear" in row.words) == ("linear" in row.pooling)
        kind = {"Transformer": "", "Feature": "fc", "Time": "tc", "Feature+Time": "ftc"}[row.model]
        assert f"transformer_{kind}_iwslt".replace("__", "_") in row.words


def test_chosen_rows_keep_the_order_of_the_tables():
    names = [row.name for row in reproduce_ftc.choose_rows(["tc-2x3,transformer", "fc-2x4"])]
    assert names == ["transformer", "fc-2x4", "tc-2x3"]
    with pytest.raises(ConfigurationError, match="nearest are transformer, .*, fc-2x3-linear"):
        reproduce_ftc.choose_rows(["nonsense"])
    with pytest.raises(ConfigurationError, match="--rows ftc-3x2 is no row: nearest are .*ftc-2x3"):
        reproduce_ftc.choose_rows(["ftc-3x2"])


def test_words_behind_two_dashes_are_fairseqs():
    args = reproduce_ftc.read_arguments(["data", "--rows", "tc-2x3", "--", "--lr", "1", "--", "x"])
    assert args.rows == ["tc-2x3"] and args.extra == ["--lr", "1", "--", "x"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--", "--encoder-blocks", "3,3"], "--encoder-blocks in the options behind --"),
        (["--", "--arch=transformer"], "--arch in the options behind --"),
        (["--", "--seed", "3"], "use --seeds"),
        (["--settings", "nowhere.args"], "--settings nowhere.args cannot be read"),
        (["--", "--learning-rate", "1"], "row transformer .*: unrecognized arguments.*learning"),
        (["--", "--decoder-attention-heads", "5"], "row transformer .* cannot be built: "),
        # sizes that only the row of six blocks cannot have
        (["--", "--encoder-embed-dim", "64"], "row fc-6x4 .* --feature-window 2 over 5 later"),
        (["--average", "3", "--", "--keep-interval-updates", "2"], "--average 3: only .* 2"),
    ],
)
def test_mistakes_are_told_before_any_row_trains(toy_data, settings, tmp_path, words, message):
    out = tmp_path / "out"
    rows = ["--rows", "transformer", "fc-6x4", "--settings", settings]
    with pytest.raises(ConfigurationError, match=message) as error:
        with reproduction(toy_data.bin, out, *rows, *words):
            pass
    assert "\n" not in str(error.value)
    assert not (out / "runs").exists()


def test_data_that_is_not_there(toy_data, tmp_path):
    for folder, message in ((None, "DATA is missing"), (tmp_path / "no", "no such folder")):
        with pytest.raises(ConfigurationError, match=message):
            reproduce_ftc.check_data(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="holds no data of fairseq"):
        reproduce_ftc.check_data(tmp_path / "empty")
    copied = shutil.copytree(str(toy_data.bin), str(tmp_path / "copied"))
    os.unlink(os.path.join(copied, "test.src-tgt.tgt.bin"))
    with pytest.raises(ConfigurationError, match="test.src-tgt.tgt.bin: No such file"):
        reproduce_ftc.check_data(tmp_path / "copied")


def test_a_folder_that_cannot_be_written_or_is_taken(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        with reproduce_ftc.claimed(tmp_path / "file" / "out"):
            pass
    monkeypatch.setattr(reproduce_ftc, "SECONDS_TO_DIE", 0.1)
    with reproduce_ftc.claimed(tmp_path / "out"):
        with pytest.raises(ConfigurationError, match="another run is at work"):
            with reproduce_ftc.claimed(tmp_path / "out"):
                pass
    with reproduce_ftc.claimed(tmp_path / "out") as lock:
        assert os.fstat(lock)


# --- the training log -----------------------------------------------------------------------------


def log_line(stamp, update, batches=50):
    return (
        f"{stamp:.3f} 2026-01-01 00:00:00 | INFO | train_inner | epoch 001: {update:6d} / {batches}"
        f" loss=9, nll_loss=8.5, ppl=300, wps=1, num_updates={update}, lr=1e-05, gnorm=2\n"
    )


def test_time_of_an_update_leaves_out_what_is_no_training():
    lines = [f"0.000 {reproduce_ftc.START} data\n"]
    lines += [log_line(100, 10), log_line(130, 20)]  # 3 s an update, in the warm-up
    lines += [log_line(140, 30)]  # 1 s
    lines += ['140.1 | fairseq_cli.train | begin validation on "valid" subset\n']
    lines += [log_line(240, 40)]  # validation is in it
    lines += [log_line(260, 50)]  # 2 s
    lines += ["261.0 | fairseq_cli.train | end of epoch 1 (average epoch stats below)\n"]
    lines += ["261.1 | train | epoch 001 | train | loss 9 | nll_loss 8 | num_updates 50 | lr 1\n"]
    # killed, and gone on from update 40: its first 20 updates are a warm-up again
    lines += [f"900.000 {reproduce_ftc.START} data\n"]
    lines += ["901.0 | trainer | Loaded checkpoint checkpoint_last.pt (epoch 1 @ 40 updates)\n"]
    lines += [log_line(1000, 50), log_line(1090, 60), log_line(1170, 70), log_line(1220, 80)]
    timing = reproduce_ftc.read_timing(lines, skip=20)
    assert timing.step_seconds == pytest.approx([1, 2, 8, 5])
    assert timing.updates_per_epoch == 50 and timing.updates == 80
    assert reproduce_ftc.read_timing(lines[:2], skip=0) == ([], 50, 10)
    assert reproduce_ftc.read_timing([], skip=0) == ([], None, 0)


def test_progress_tells_update_and_time_left(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    said = []
    progress = reproduce_ftc.Progress(said.append, limit=400, seconds=float("inf"))
    for update, moment in ((100, 1000.0), (150, 1001.0), (200, 1100.0)):
        now[0] = moment
        progress.line(log_line(0, update))
    assert said == [
        "update 100/400, epoch 1, train nll 8.5",
        "update 200/400, epoch 1, train nll 8.5, about 3 min left",
    ]
    # without a number of updates, minutes say when it ends
    said.clear()
    progress = reproduce_ftc.Progress(said.append, limit=float("inf"), seconds=90)
    progress.line(log_line(0, 7))
    assert said == ["update 7, epoch 1, train nll 8.5, about 90 s left"]


# --- what is kept, and what is done again ---------------------------------------------------------


@pytest.fixture
def reproduce(toy_data, settings, tmp_path, monkeypatch):
    """reproduce(*words) does all but train and translate; returns what it would have done."""
    done = []

    def train(self, row, seed, say):
        if (row.name, seed) == ("ftc-2x3", 2):
            raise reproduce_ftc.Failed("training ended with status 1", tmp_path / "log")
        built = self.built[row.name]
        done.append(f"train {row.name} {seed} {built.max_update}")
        return {
            "end": built.end, "parameters": built.parameters, "updates": built.max_update,
            "updates_per_epoch": 6, "step_seconds": [1.0], "epoch_seconds": 6.0 + len(done),
            "timing_skip": 100, "parallel": 1, "machine": self.machine, "commit": self.commit,
        }  # fmt: skip

    def translate(self, folder, say):
        done.append(f"test {folder.name} {self.args.average}")
        return {"bleu": 20.0 + len(done), "signature": "tok:none", "checkpoint": "best"}

    monkeypatch.setattr(reproduce_ftc.Reproduction, "train", train)
    monkeypatch.setattr(reproduce_ftc.Reproduction, "test", translate)

    def run(*words):
        done.clear()
        start = ["--settings", settings, "--rows", "transformer", "ftc-2x3"]
        with reproduction(toy_data.bin, tmp_path / "out", *start, *words) as made:
            made.finish_all()
        return list(done), made

    return run


def test_finished_runs_are_kept_and_unfinished_ones_done(reproduce, tmp_path):
    done, made = reproduce("--max-update", 10)
    assert done == [
        "train transformer 1 10", "test transformer-seed1 None",
        "train ftc-2x3 1 10", "test ftc-2x3-seed1 None",
    ]  # fmt: skip
    assert not made.failures

    # another seed, one run of which fails: told, and the others stand
    (tmp_path / "log").write_text("1.000 epoch 1\n2.000 x.py:3: UserWarning: y\n3.000 no memory\n")
    done, made = reproduce("--max-update", 10, "--seeds", 1, 2)
    assert done == ["train transformer 2 10", "test transformer-seed2 None"]
    assert [failure["run"] for failure in made.failures] == ["ftc-2x3 seed 2"]
    assert reproduce_ftc.last_lines(tmp_path / "log") == ["epoch 1", "no memory"]
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "Failed: ftc-2x3 seed 2: training ended with status 1" in table
    assert "Seeds differ: transformer 1, 2; ftc-2x3 1." in table
    assert re.search(r"^\| Transformer .* 22\.00 ± 0\.00 \(2\) ", table, re.MULTILINE)

    # longer: trained on; shorter: there already; tested in another way: only tested
    assert reproduce("--max-update", 20)[0][0] == "train transformer 1 20"
    assert reproduce("--max-update", 15)[0] == []
    assert reproduce("--max-update", 20, "--average", 2)[0] == [
        "test transformer-seed1 2", "test ftc-2x3-seed1 2",
    ]  # fmt: skip

    # other settings do not get into the same table
    with pytest.raises(ConfigurationError, match="differ in the options behind --"):
        reproduce("--", "--lr", "1")


def test_all_thirteen_rows_can_be_built(toy_data, settings, tmp_path):
    with reproduction(toy_data.bin, tmp_path, "--settings", settings) as made:
        pass
    assert list(made.built) == [row.name for row in reproduce_ftc.ROWS]
    sizes = {name: built.parameters for name, built in made.built.items()}
    assert sizes["tc-2x3"] == sizes["transformer"] > sizes["fc-2x3-linear"] > sizes["fc-2x3"]
    assert sizes["fc-2x3"] == sizes["ftc-2x3"] > sizes["fc-2x3-window4"]
    assert made.data["pairs"] == toy_data.sizes


def test_a_full_disk_is_told_early(toy_data, settings, tmp_path, monkeypatch):
    usage = shutil.disk_usage(str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(ConfigurationError, match="the checkpoints need about .* GB"):
        words = ["--settings", settings, "--rows", "transformer"]
        with reproduction(toy_data.bin, tmp_path, *words):
            pass


# --- programs -------------------------------------------------------------------------------------


def test_a_signal_ends_what_runs(tmp_path):
    with open(tmp_path / "lock", "w") as lock:
        children = reproduce_ftc.Children(dict(os.environ), lock.fileno())
        program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
        lines, outcome = [], []

        def work():
            try:
                children.run([sys.executable, "-c", program], lines.append)
            except BaseException as error:
                outcome.append(type(error))

        thread = threading.Thread(target=work)
        thread.start()
        while not lines:
            time.sleep(0.01)
        children.stop()
        thread.join(timeout=20)
    assert outcome == [reproduce_ftc.Stopped]
    with pytest.raises(ProcessLookupError):
        os.kill(int(lines[0]), 0)
    with pytest.raises(reproduce_ftc.Stopped):
        children.run(["true"], lines.append)


def test_bleu_is_of_tokens_in_the_order_of_the_test_set(tmp_path):
    # fairseq prints long sentences first, and an unknown word of the reference so that none fits
    texts = [
        ("a b c d e f &apos;s", "a b c d e f &apos;s"),
        ("a (b) c", "a <unk> c"),
        ("d e", "d f g"),
    ]
    log = tmp_path / "generate.log"
    lines = ["INFO | loading model\n"]
    for number in (1, 0, 2):
        reference, translation = texts[number]
        reference = reference.replace("(b)", "<<unk>>")
        lines += [f"S-{number}\tx\n", f"T-{number}\t{reference}\n"]
        lines += [f"H-{number}\t-0.1\t{translation}\n", f"D-{number}\t-0.1\t{translation}\n"]
    log.write_text("".join(lines), encoding="utf-8")
    made = mock.Mock(data={"pairs": {"test": 3}, "tokenize": "none"})
    score = reproduce_ftc.Reproduction.score(made, log)
    # matches of one to four words; the reference has 12 words, the translation 13
    assert score["bleu"] == pytest.approx(100 * (10 / 13 * 6 / 10 * 5 / 7 * 4 / 4) ** 0.25)
    assert "tok:none" in score["signature"] and score["sentences"] == 3
    made.data["pairs"]["test"] = 4
    with pytest.raises(reproduce_ftc.Failed, match="3 of 4 test sentences"):
        reproduce_ftc.Reproduction.score(made, log)


# --- the report -----------------------------------------------------------------------------------


@pytest.fixture
def results():
    machine = {"gpu": "a GPU", "cpu": "a processor", "cores": 8, "threads": 4}
    machine.update(python="3.11.7", torch="2.13.0", fairseq="fairseq 0.12.2")
    made = {
        "data": {"name": "some data", "pairs": {"train": 160239, "valid": 7, "test": 6}},
        "settings": {"shown": "--lr 5e-4"},
        "interleaved": None,
        "failures": [],
        "rows": [],
    }
    for row in reproduce_ftc.ROWS:
        paper = {"bleu": row.bleu, "epoch_seconds": row.epoch_seconds}
        named = {name: getattr(row, name) for name in ("name", "model", "blocks", "pooling")}
        made["rows"].append({**named, "paper": paper, "runs": []})

    def add(name, seed, bleu, seconds, **training):
        row = next(row for row in made["rows"] if row["name"] == name)
        done = {
            "parameters": 39469056, "updates": 50000, "epoch_seconds": seconds, "timing_skip": 100,
            "parallel": 1, "machine": machine, "commit": "1234567", **training,
        }  # fmt: skip
        scoring = {"bleu": bleu, "signature": "nrefs:1|tok:none", "checkpoint": "the best one"}
        row["runs"].append({"seed": seed, "training": done, "scoring": scoring})

    add("transformer", 1, 34.5, 80.0)
    add("transformer", 2, 34.7, 84.0)
    add("ftc-2x3", 1, 35.25, 61.5)
    add("ftc-2x3", 2, 35.25, 61.5)
    return made, add


def cells(table, *start):
    for line in table.splitlines():
        found = [cell.strip() for cell in line.strip("|").split("|")]
        if found[: len(start)] == list(start):
            return found[len(start) :]
    raise AssertionError(f"no row {start}")


def test_the_table_stands_beside_the_papers_figures(results):
    table = report.table(results[0])
    assert cells(table, "Transformer", "1x6", "-") == [
        "34.9", "34.60 ± 0.14 (2)", "216", "82", "1.000", "1.000", "39.47 M", "50,000",
    ]  # fmt: skip
    assert cells(table, "Feature+Time", "2x3", "2") == [
        "35.1", "35.25 ± 0.00 (2)", "163", "61.5", "0.755", "0.750", "39.47 M", "50,000",
    ]  # fmt: skip
    assert cells(table, "Feature", "2x3", "2 (linear)") == [
        "35.1", "-", "204", "-", "0.944", "-", "-", "-",
    ]  # fmt: skip
    for note in (
        "not interleaved.",
        "a GPU, a processor",
        "1234567",
        "Seeds: 1, 2.",
        "`--lr 5e-4`",
    ):
        assert note in table
    assert "not with the paper's column" not in table and "shared the machine" not in table


def test_the_table_says_what_limits_its_figures(results):
    made, add = results
    made["data"]["pairs"]["train"] = 48880
    assert "--generate" not in report.table(made)
    add("tc-2x3", 1, 34.0, None, updates=700, parallel=3)
    made["rows"][0]["runs"][0]["scoring"]["wanted"] = [None, ["--beam", "1"]]
    table = report.table(made)
    assert cells(table, "Time", "2x3", "2")[3] == "-"  # too short to be timed
    for note in (
        "not with the paper's column",
        "not trained for the same number of updates",
        "not to be trusted here",
        "Up to 1 to 3 runs shared the machine",
        "Seeds differ",
        "Translation was changed by `--generate`: `--beam 1`.",
    ):
        assert note in table


def test_interleaved_times_replace_those_of_the_log(results):
    made, _ = results
    machine = made["rows"][0]["runs"][0]["training"]["machine"]
    figure = {"time_ratio": 0.7654, "time_ratio_quartiles": [0.75, 0.77]}
    rows = {"transformer": dict(figure, time_ratio=1.0), "ftc-2x3": figure}
    made["interleaved"] = {"rows": rows, "machine": machine, "commit": "7654321"}
    made["interleaved"].update(batches=8, rounds=5)
    table = report.table(made)
    assert cells(table, "Feature+Time", "2x3", "2")[5] == "0.765"
    assert "ftc-2x3 0.750 - 0.770" in table and "not interleaved" not in table


def test_the_plot_shows_each_row_that_has_a_score(results, tmp_path):
    pytest.importorskip("matplotlib")
    first = report.plot(results[0], tmp_path / "plot")
    assert [path.name for path in first] == ["plot.svg", "plot.png"]
    assert first[1].read_bytes().startswith(b"\x89PNG")
    before = first[0].read_text()
    assert "<svg" in before and not list(tmp_path.glob("*.part"))
    without = copy.deepcopy(results[0])
    without["rows"][8]["runs"] = []
    report.plot(without, tmp_path / "plot")
    assert len((tmp_path / "plot.svg").read_text()) < len(before)


# --- the real thing -------------------------------------------------------------------------------


def start(data, out, settings, *words):
    command = [sys.executable, str(SCRIPT), str(data), "--out", str(out), "--cpu"]
    command += ["--settings", str(settings), *words, "--"]
    command += ["--num-workers", "0", "--log-interval", "2", "--save-interval-updates", "10"]
    command += ["--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "32"]
    return subprocess.Popen(
        command,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_rows_killed_and_run_again(toy_data, settings, tmp_path):
    out = tmp_path / "out"
    words = ["--rows", "transformer", "ftc-2x3", "--max-update", "40", "--timing-skip", "6"]
    words += ["--generate", "--max-len-b 12", "--time-rounds", "1", "--threads", "1"]
    process = start(toy_data.bin, out, settings, *words)
    second = out / "runs" / "ftc-2x3-seed1"
    until = time.monotonic() + 250
    # of 20: by then checkpoint_last.pt is of 10 at least, as it is written after its own interval's
    while not list(second.glob("checkpoint_*_[23]0.pt")):
        if process.poll() is not None or time.monotonic() > until:
            break
        time.sleep(0.01)
    how = signal.SIGKILL if shutil.which("setpriv") else signal.SIGTERM
    process.send_signal(how)
    output, _ = process.communicate(timeout=30)
    assert process.returncode in (-signal.SIGKILL, 130), output
    assert "transformer seed 1: BLEU" in output and not (second / "result.json").exists()
    first_log = (out / "runs" / "transformer-seed1" / "train.log").read_bytes()

    process = start(toy_data.bin, out, settings, *words)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "transformer seed 1: kept, 40 updates" in output
    assert int(re.search(r"ftc-2x3 seed 1: goes on from update (\d+)", output).group(1)) >= 10
    assert (out / "runs" / "transformer-seed1" / "train.log").read_bytes() == first_log

    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    for number in (0, 8):
        (run,) = results["rows"][number]["runs"]
        assert run["training"]["updates"] == 40 and run["training"]["epoch_seconds"] > 0
        assert run["scoring"]["sentences"] == toy_data.sizes["test"]
        assert "tok:none" in run["scoring"]["signature"]
    assert results["interleaved"]["rows"]["ftc-2x3"]["time_ratio"] > 0
    assert not results["failures"] and not list(out.glob("**/*.part"))

    # table and plot come from results.json alone
    table = (out / "table.md").read_text(encoding="utf-8")
    assert table in output
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(str(out / "results.json"), str(elsewhere))
    assert reproduce_ftc.main(["--report-only", "--out", str(elsewhere)]) == 0
    assert (elsewhere / "table.md").read_text(encoding="utf-8") == table
