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


@pytest.mark.slow
def test_ray_writes_what_the_command_writes(expected, tmp_path):
    pytest.importorskip("ray.data")
    run(
        *(tmp_path, sys.executable, LARGE / "ray_translate.py", "--model", "tatoeba-de-en"),
        *("--input", "in", "--output", "out", "--batch", "6"),
    )
    assert (tmp_path / "out").read_text("utf-8") == expected


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed")
def test_spark_writes_what_the_command_writes(expected, tmp_path):
    pytest.importorskip("pyspark.sql.pandas")
    run(
        *(tmp_path, sys.executable, LARGE / "spark_translate.py"),
        *("tatoeba-de-en", "in", "out", "6"),
        PYSPARK_PYTHON=sys.executable,
    )
    assert (tmp_path / "out").read_text("utf-8") == expected
