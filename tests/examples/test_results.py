"""The scores on the page of translation are those of the committed results."""

import json
import re

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "translation"
PAGE = (FOLDER / "README.md").read_text("utf-8")
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
    rows = [line for line in PAGE.splitlines() if line.lstrip().startswith("|")]
    assert any(wanted <= set(re.findall(r"\d+\.\d+", row)) for row in rows), wanted


def test_each_row_of_a_seed_has_a_result():
    known = {f"{score:.2f}" for scores in SCORES.values() for score in scores.values()}
    converged = PAGE.split("\n## Multi30k English-German, to convergence")[1]
    rows = re.findall(
        r"^\| [^|]*, \d \|.*", converged.split("\n## IWSLT'14 German-English, red")[0], re.M
    )
    assert len(rows) == sum(bool(re.search(r"seed\d$", name)) for name in SCORES)
    for row in rows:
        scores = re.findall(r"\d\d\.\d\d", row)[-3:]
        assert len(scores) == 3 and set(scores) <= known, row
