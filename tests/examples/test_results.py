"""The plots on the pages of translation have the labels of the committed results."""

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "translation"


def test_the_plots_show_the_results(tmp_path):
    pytest.importorskip("matplotlib", minversion="3.7")
    command = [sys.executable, "-m", "fairseq_plugins", "plot-results", "--out", tmp_path]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    made = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert made.returncode == 0 and made.stderr == "", made.stderr
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == sorted(path.name for path in (FOLDER / "results").glob("*.svg"))
    for name in drawn:
        texts = [
            re.findall(r"<text[^>]*>([^<]*)</text>", (folder / name).read_text("utf-8"))
            for folder in (tmp_path, FOLDER / "results")
        ]
        assert texts[0] == texts[1] and texts[0], name
