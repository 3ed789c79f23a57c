"""The laboratory works as fairseq's `--user-dir`."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "fairseq_plugins"
LAB = PACKAGE / "lab"
CODE = """
import argparse, sys
from fairseq import criterions, models, tasks, utils
utils.import_user_module(argparse.Namespace(user_dir=sys.argv[1]))
for name in ("transformer_ftc", "news_recommender", "pair_classifier"):
    assert name in models.ARCH_MODEL_REGISTRY, name
assert "news_recommendation" in tasks.TASK_REGISTRY
assert "news_recommendation" in criterions.CRITERION_REGISTRY
from sys import path
assert not any(place.endswith("fairseq_plugins") for place in path), path
"""


@pytest.mark.slow
def test_it_is_a_user_dir(tmp_path):
    """Not installed, with models of its own, which register once under either name."""
    for folder in (PACKAGE, LAB):
        copy = tmp_path / folder.relative_to(ROOT)
        copy.mkdir()
        for path in folder.iterdir():
            if path != LAB:
                (copy / path.name).symlink_to(path)
    words = [sys.executable, "-W", "ignore", "-P", "-c", CODE, "lab"]
    done = subprocess.run(
        words,
        cwd=str(tmp_path / "fairseq_plugins"),
        env={"PATH": ""},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
