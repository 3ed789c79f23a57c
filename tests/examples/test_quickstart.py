"""examples/quickstart.sh on a tiny model: its steps, what it keeps, a kill, and bad input."""

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

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "examples" / "quickstart.sh"
TEXT = ROOT / "examples" / "quickstart"
SCORED = Path("evaluation", "test-checkpoint_best-beam5")
TINY = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--decoder-embed-dim 16 --decoder-ffn-embed-dim 16 --decoder-attention-heads 2 "
    "--encoder-blocks 1,1 --decoder-layers 1 --max-tokens 600 --warmup-updates 20 "
    "--save-interval-updates 10 --log-interval 2"
).split()

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def start(out, *words, extra=(), **options):
    """quickstart.sh with this Python and one thread, in a process group of its own."""
    folder = str(Path(sys.executable).parent)
    command = ["bash", str(SCRIPT), "--no-install", "--threads", "1", "--out", str(out), *words]
    return subprocess.Popen(
        command + (["--", *extra] if extra else []),
        env=dict(os.environ, PATH=folder + os.pathsep + os.environ["PATH"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        start_new_session=True,
        **options,
    )


def finish(process):
    output, _ = process.communicate(timeout=1200)
    return process.returncode, output


def newest_update(out):
    """The update of the newest checkpoint that carries one in its name, or 0."""
    names = [path.stem for path in out.glob("transformer_ftc-*/checkpoint_*_*.pt")]
    return max([int(name.rsplit("_", 1)[1]) for name in names], default=0)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw text")
    for split, size in {"train": 300, "valid": 20, "test": 21}.items():
        for language in ("de", "en"):
            lines = (TEXT / f"{split}.{language}").read_text("utf-8").splitlines(True)[:size]
            (folder / f"{split}.{language}").write_text("".join(lines), "utf-8")
    return folder


@pytest.mark.slow
def test_from_text_to_a_translation(text, tmp_path):
    """After a kill, which ends the training, too. tests/train has how that resumes."""
    out = tmp_path / "a folder"
    words = ["--data", str(text), "--vocab-size", "300", "--max-update"]
    process = start(out, *words, "1000000", extra=TINY)
    while newest_update(out) < 10:
        assert process.poll() is None
        time.sleep(0.01)
    if shutil.which("setpriv"):
        process.kill()  # the script alone: its training goes with it
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    (run,) = out.glob("transformer_ftc-*")
    with files.alone_in(run, "training", patience=1200):  # the training is gone
        shutil.rmtree(run)

    status, output = finish(start(out, *words, "20", extra=TINY))
    assert status == 0, output
    assert output.count("kept: ") == 1  # the prepared text
    assert "update 20/20" in output
    assert re.search(r"BLEU = [\d.]+ .*version:", output)
    (run,) = out.glob("transformer_ftc-*")
    assert len((run / SCORED / "outputs.jsonl").read_text().splitlines()) == 21
    assert not list(out.glob("**/*.part"))

    # the command that is printed for a sentence of one's own works when pasted
    printed = output[output.index("    echo '") : output.index("All of it took")]
    pasted = subprocess.run(["bash", "-c", printed], stdout=subprocess.PIPE, cwd=str(tmp_path))
    assert pasted.returncode == 0 and pasted.stdout.count(b"\n") == 1


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--speed", "high"], "unknown option --speed"),
        (["--seed"], "--seed needs a value"),
        (["--max-update", "0"], "--max-update 0: give at least 1"),
        (["--max-update", "1e3"], "--max-update '1e3' is no whole number"),
        (["--seed", "-1"], "--seed '-1'"),
        (["--data", "no/such/folder"], "--data no/such/folder: no such folder"),
        (["--arch", "transformers"], "--arch transformers: no such architecture"),
        (["--", "--arch", "transformer"], "give --arch before --"),
        (["--", "--arch=transformer"], "give --arch before --"),
    ],
)
def test_bad_option(tmp_path, words, expected):
    status, output = finish(start(tmp_path / "out", *words))
    assert status == 1
    assert expected in output and output.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_bad_text(text, tmp_path):
    folder = shutil.copytree(str(text), str(tmp_path / "bad"))
    Path(folder, "valid.en").write_bytes(b"one line\n")
    status, output = finish(start(tmp_path / "out", "--data", folder))
    assert status == 1
    assert re.match("error: .*valid.de has 20 lines", output.splitlines()[-1])
    assert "Traceback" not in output
    assert not [path for path in (tmp_path / "out").glob("data-*") if path.suffix != ".part"]


def test_one_run_at_a_time(text, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    if shutil.which("flock") is None:
        pytest.skip("flock is not installed")
    (tmp_path / "out").mkdir()
    with open(tmp_path / "out" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, output = finish(start(tmp_path / "out", "--data", str(text)))
    assert status == 1 and "another run is at work" in output
