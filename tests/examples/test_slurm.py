"""The job for Slurm: what it starts on one machine and on several."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

TRANSLATION = ROOT / "examples" / "translation"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def fake(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n" + text)
    (folder / name).chmod(0o755)


def environment_of(folder, job):
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "SLURM_JOB_ID": job, "SLURM_SUBMIT_DIR": str(ROOT)}


@pytest.mark.parametrize("nodes", [1, 2])
def test_slurm(tmp_path, nodes):
    fake(tmp_path / "bin", "srun", 'printf "%s\\n" "$@"\n')
    fake(tmp_path / "bin", "scontrol", '[ "$3" = "a[1-2]" ] && printf "a1\\na2\\n"\n')
    environment = environment_of(tmp_path, "20007")
    environment.update(SLURM_JOB_NUM_NODES=str(nodes), SLURM_JOB_NODELIST="a[1-2]")

    def submit(*words):
        return subprocess.run(
            ["bash", str(shutil.copy(str(TRANSLATION / "slurm.sbatch"), str(tmp_path))), *words],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip

    done = submit("transformer_ftc", "some data", "--", "--seed", "2")
    assert done.returncode == 0, done.stdout
    words = done.stdout.splitlines()
    words = words[words.index("bash") :]
    assert words[1:3] == [str(ROOT / "scripts" / "plugin.sh"), "train"]
    several = ["--nodes", "2", "--rendezvous", "a1:20007"] if nodes == 2 else []
    assert words[3:] == [*several, "transformer_ftc", "some data", "--", "--seed", "2"]
    environment["SLURM_SUBMIT_DIR"] = str(tmp_path)
    done = submit("transformer_ftc", "some data")
    assert done.returncode == 1 and "submit from the checkout" in done.stdout


def test_a_job_that_reaches_its_time_limit_saves_and_is_queued_again(tmp_path):
    """USR1 reaches the script; it ends the step, which saves, and only then queues the job."""
    script = shutil.copy(str(TRANSLATION / "slurm.sbatch"), str(tmp_path))
    assert "#SBATCH --signal B:USR1@" in Path(script).read_text()
    log = tmp_path / "log"
    fake(
        tmp_path / "bin", "srun",
        f"trap 'sleep 1; echo saved >> {log}; exit 143' TERM\n"
        f"echo $$ > {tmp_path}/step\nkill -USR1 $PPID\nwhile :; do sleep 0.1; done\n",
    )  # fmt: skip
    fake(
        tmp_path / "bin",
        "scancel",
        f'echo scancel "$@" >> {log}\nkill -TERM $(cat {tmp_path}/step)\n',
    )
    fake(tmp_path / "bin", "scontrol", f'echo scontrol "$@" >> {log}\n')
    environment = environment_of(tmp_path, "7")
    done = subprocess.run(
        ["bash", script, "transformer_ftc", "data"], env=environment, timeout=1200
    )
    assert done.returncode == 0
    assert log.read_text().split("\n")[:3] == [
        "scancel --signal TERM 7",
        "saved",
        "scontrol requeue 7",
    ]
