"""Whatever options are drawn, a model runs, or they are refused in one line."""

import os

from tests.models.random_options import try_many


def test_random_options_run_or_are_refused(parse_joined, capsys):
    """More of them: ``RANDOM_OPTIONS=1000 RANDOM_SEED=2 pytest -s`` with the path of this file."""
    seed = int(os.environ.get("RANDOM_SEED", "1"))
    count = int(os.environ.get("RANDOM_OPTIONS", "60"))
    counts, faults = try_many(parse_joined, count, seed)
    capsys.readouterr()  # what argparse said
    print(f"seed {seed}: {dict(counts)}")
    for fault in faults:
        print(fault)
    assert not faults, f"seed {seed}: {len(faults)} of {count} end in a traceback"
    assert counts["ran"] > 0 and counts["refused"] > 0
