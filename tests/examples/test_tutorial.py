"""The tutorial: all commands of the page run in order, on less text and with few updates."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "examples" / "tutorial.md"
LINES = {"train": 600, "more": 100, "valid": 12, "test": 12, "only": 30}


def commands():
    """The indented lines of the page, without what the commands print, as one script."""
    text = re.sub(r"```.*?```", "", PAGE.read_text("utf-8"), flags=re.S)
    return "\n".join(re.findall(r"^    (.*)$", text, re.M)) + "\n"


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path):
    pytest.importorskip("matplotlib", minversion="3.7")
    pytest.importorskip("onnxscript")
    if not (shutil.which("bash") and shutil.which("curl")):
        pytest.skip("bash and curl are not installed")
    own = tmp_path / "examples" / "tutorial"
    shutil.copytree(PAGE.parent / "tutorial", own)
    for name, count in LINES.items():
        for file in own.glob(f"{name}.??"):
            lines = file.read_text("utf-8").splitlines(True)[:count]
            file.write_text("".join(lines), "utf-8")
    script, shortened = re.subn(r"--max-update \d+", "--max-update 4", commands())
    assert shortened == 4 and script.count("fairseq-plugins ") == 15
    script = script.replace("--vocab-size 2000", "--vocab-size 300").replace(":8000", ":58231")
    service = own / "service.py"
    service.write_text(service.read_text("utf-8").replace("8000", "58231"), "utf-8")
    path = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    environment = dict(os.environ, PATH=path, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "POST / HTTP/1.1" in done.stdout
    for written in ("curves.svg", "both.svg", "attention.html", "exported/config.json"):
        assert (tmp_path / written).stat().st_size > 100
