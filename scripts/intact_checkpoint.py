#!/usr/bin/env python3
"""Make sure that fairseq-train finds a whole checkpoint_last.pt to go on from.

    python scripts/intact_checkpoint.py SAVE_DIR

fairseq writes one checkpoint of an update in one piece and copies it to its other names: to
checkpoint_best.pt, then to checkpoint_last.pt. A process that is killed while it copies leaves
checkpoint_last.pt cut short. The newest checkpoint of an update that is whole then takes its place;
without one, training starts anew.
"""

import argparse
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Optional, Sequence

LAST = "checkpoint_last.pt"


def updates(path: Path) -> int:
    """The update that ``checkpoint_<epoch>_<update>.pt`` was written at; -1 for other names."""
    match = re.fullmatch(r"checkpoint_\d+_(\d+)\.pt", path.name)
    return int(match.group(1)) if match else -1


def mend(folder: Path) -> Optional[str]:
    """Replace a checkpoint_last.pt that was cut short; returns what was done, if anything."""
    last = folder / LAST
    # torch writes zip archives, whose table of contents stands at the end
    if not last.exists() or zipfile.is_zipfile(last):
        return None
    whole = [path for path in folder.iterdir() if updates(path) >= 0 and zipfile.is_zipfile(path)]
    if not whole:
        last.unlink()
        return f"{last} was cut short, and there is no other: training starts anew"
    newest = max(whole, key=updates)
    shutil.copyfile(newest, folder / (LAST + ".part"))
    os.replace(folder / (LAST + ".part"), last)
    return f"{last} was cut short: {newest.name} takes its place"


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="SAVE_DIR")
    args = parser.parse_args(argv)
    try:
        done = mend(args.folder)
    except OSError as error:
        sys.exit(f"intact_checkpoint: {error}")
    if done:
        print(done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
