"""The scores and plots on the pages of translation are those of the committed results."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "translation"
PAGES = [  # for a reader, and with all runs
    (FOLDER / f"{page}.md", ROOT / "examples" / "results" / f"{runs}.md")
    for page, runs in (("multi30k", "multi30k"), ("iwslt14_few_pairs", "iwslt14"))
]
CONVERGED = "".join(runs.read_text("utf-8") for _, runs in PAGES)
SCORES = {  # of each file with scores on test
    path.stem: scores
    for path in sorted((FOLDER / "results").glob("*.json"))
    for scores in json.loads(path.read_text("utf-8")).get("test", {}).values()
}


@pytest.mark.parametrize("name", SCORES)
def test_each_result_has_a_row(name):
    # what was only tried has one score in its row
    metrics = ["tokenised BLEU", "BLEU", "chrF2"] if "_seed" in name else ["tokenised BLEU"]
    wanted = {f"{SCORES[name][metric]:.2f}" for metric in metrics}
    rows = [line for line in CONVERGED.splitlines() if line.startswith("|")]
    assert any(wanted <= set(re.findall(r"\d+\.\d+", row)) for row in rows), wanted


def test_each_row_of_a_seed_has_a_result():
    known = {f"{score:.2f}" for scores in SCORES.values() for score in scores.values()}
    results = "".join(re.findall(r"^## Results$.*?^## ", CONVERGED, re.M | re.S))
    rows = re.findall(r"^\| [^|]*, \d \|.*", results, re.M)
    assert len(rows) == sum(bool(re.search(r"seed\d$", name)) for name in SCORES)
    for row in rows:
        scores = re.findall(r"\d\d\.\d\d", row)[-3:]
        assert len(scores) == 3 and set(scores) <= known, row


def test_the_pages_for_a_reader_state_scores_of_the_runs():
    for page, runs in PAGES:
        tables = [line for line in page.read_text("utf-8").splitlines() if line[:1] == "|"]
        scores = set(re.findall(r"\b\d\d\.\d\d\b", "".join(tables)))
        assert len(scores) > 10
        assert scores <= set(re.findall(r"\b\d\d\.\d\d\b", runs.read_text("utf-8"))), page


def lines_of(path):
    """The lines and markers of a plot: points as shares of their axes, as sizes vary with fonts.

    Which points off the axes a file keeps depends on its sizes.
    """
    text = path.read_text("utf-8")
    axes = {
        name: tuple(map(float, numbers))
        for name, *numbers in re.findall(
            r'<clipPath id="([^"]+)">\s*'
            r'<rect x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"',
            text,
        )
    }
    lines = re.findall(r'<path d="(M [^"]*)" clip-path="url\(#([^)]+)\)"', text)
    for name, marks in re.findall(r'<g clip-path="url\(#([^)]+)\)">(.*?)</g>', text, re.S):
        points = re.findall(r'x="([^"]+)" y="([^"]+)"', marks)
        lines.append((" ".join(map(" ".join, points)), name))
    for points, name in lines:
        x, y, width, height = axes[name]
        places = np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", points), dtype=float)
        shares = (places - (x, y)) / (width, height)
        yield shares[((shares > -1e-3) & (shares < 1 + 1e-3)).all(axis=1)]


def test_the_plots_show_the_results(tmp_path):
    pytest.importorskip("matplotlib", minversion="3.7")
    command = [sys.executable, "-m", "fairseq_plugins.lab.plot_results", "--out", tmp_path]
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
        here, there = (list(lines_of(folder / name)) for folder in (tmp_path, FOLDER / "results"))
        assert len(here) == len(there) > 5
        for one, other in zip(here, there):
            assert one.shape == other.shape and np.allclose(one, other, atol=0.01), name
