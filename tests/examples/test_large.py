"""Large work: the Slurm array, and Ray and Spark where they are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.api import Translator
from tests.conftest import ROOT

LARGE = ROOT / "examples" / "large"
PLACES_OF_TRANSLATOR = ("fairseq_plugins.api", "tests.examples.lost_worker")


@pytest.fixture
def expected(tmp_path):
    """What `translate --buffer 6` writes for tmp_path/in."""
    german = (ROOT / "examples/quickstart/test.de").read_text("utf-8").splitlines()[:30]
    (tmp_path / "in").write_text("\n".join(german) + "\n", "utf-8")
    translator = Translator("tatoeba-de-en")
    groups = [translator.translate(german[first : first + 6]) for first in range(0, 30, 6)]
    return "".join(line + "\n" for group in groups for line in group)


def run(folder, *words, **environment):
    subprocess.run(words, cwd=folder, env={**os.environ, **environment}, check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_shares_of_a_slurm_array_join_to_the_whole(expected, tmp_path):
    shutil.copy(str(LARGE / "array.sbatch"), str(tmp_path))  # Slurm runs a copy
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    for task in (2, 0, 1, 0):  # the last one is requeued after its end
        run(
            *(tmp_path, "bash", "array.sbatch", "tatoeba-de-en", "in", "out", "--buffer", "6"),
            SLURM_SUBMIT_DIR=str(tmp_path),
            SLURM_ARRAY_TASK_COUNT="3",
            SLURM_ARRAY_TASK_ID=str(task),
        )
    parts = [(tmp_path / f"out.00{task}").read_text("utf-8") for task in range(3)]
    assert all(parts) and "".join(parts) == expected


def losing_a_worker(name, folder, master="", parents=0):
    """An example that loses a worker, see `lost_worker`, and variables for it."""
    text = (LARGE / name).read_text("utf-8")
    plain, lost = (f"from {place} import Translator" for place in PLACES_OF_TRANSLATOR)
    assert plain in text
    (folder / name).write_text(text.replace(plain, lost), "utf-8")
    return name, {
        "LOST_WORKER": str(folder / "lost"),
        "LOST_PARENTS": str(parents),
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master {master} pyspark-shell",
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_ray_loses_a_worker_and_writes_what_the_command_writes(expected, tmp_path):
    pytest.importorskip("ray.data")
    script, variables = losing_a_worker("ray_translate.py", tmp_path)
    words = ["--model", "tatoeba-de-en", "--input", "in", "--output", "out", "--batch", "6"]
    run(tmp_path, sys.executable, script, *words, **variables)
    assert (tmp_path / "lost").exists()
    assert (tmp_path / "out").read_text("utf-8") == expected


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed")
@pytest.mark.parametrize("master, parents", [("local[2,4]", 0), ("local-cluster[2,1,1024]", 2)])
def test_spark_loses_a_worker_and_writes_what_the_command_writes(
    expected, tmp_path, master, parents
):
    """A Python process in one Java process, and one of two executors with all its processes."""
    pytest.importorskip("pyspark.sql.pandas")
    script, variables = losing_a_worker("spark_translate.py", tmp_path, master, parents)
    run(tmp_path, sys.executable, script, "tatoeba-de-en", "in", "out", "6", **variables)
    assert (tmp_path / "lost").exists()
    assert (tmp_path / "out").read_text("utf-8") == expected
