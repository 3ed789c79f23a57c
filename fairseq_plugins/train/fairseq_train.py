"""Run fairseq-train in this process, with a log and a report of its progress.

    python -m fairseq_plugins.train.fairseq_train HOW DATA [options of fairseq-train]

is one of several processes that torchrun starts: standard error is the log, and standard output
shows the progress. HOW is JSON with "dry_run", and the "shares" of `Plan`.
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import fairseq_plugins
from fairseq_plugins.options.user_dirs import import_user_dirs
from fairseq_plugins.train.log import logged_to
from fairseq_plugins.train.supervise import end_with_the_parent

ENOUGH = 64  # exit status of the process that has measured enough updates, for the others to end


def run(
    words: Sequence[str],
    say: Callable[[str], None],
    dry_run: bool = False,
    rank: int = 0,
    local_rank: int = 0,
) -> bool:
    """Train, or make some updates and estimate the time.

    Args:
        words: the arguments of fairseq-train.
        say: called with each line of the report.
        rank, local_rank: of this process, among all that train together and those of its machine.

    Returns:
        whether a dry run has measured enough before the training was over.
    """
    from fairseq_cli import train

    from fairseq_plugins.compat.progress import reported_to
    from fairseq_plugins.train.progress import Measured, Progress, Rehearsal

    master = rank == 0
    progress = (
        Rehearsal(say, master) if dry_run else Progress(lambda line: say("  " + line), master)
    )
    ours = logging.getLogger("fairseq_plugins")
    if local_rank == 0:
        ours.addHandler(progress)
    enough = False
    try:
        with reported_to(progress), mock.patch.object(sys, "argv", ["fairseq-train", *words]):
            train.cli_main()
        progress.ended()
    except Measured:
        enough = True
    finally:
        ours.removeHandler(progress)
    if isinstance(progress, Rehearsal) and master:
        say(progress.estimate())
    return enough


def main() -> None:
    """Be one of the processes of torchrun."""
    from torch.distributed.elastic.multiprocessing.errors import record

    end_with_the_parent()
    how, words = json.loads(sys.argv[1]), sys.argv[2:]
    told, *share = how["shares"].get(os.environ["WORLD_SIZE"], [""])
    words += share
    user_dirs = [Path(after) for word, after in zip(words, words[1:]) if word == "--user-dir"]

    def work() -> None:
        fairseq_plugins.register("train")
        import_user_dirs(user_dirs)
        ranks = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK"))
        if told and os.environ["RANK"] == "0":
            say(told)
        if run(words, say, how["dry_run"], *ranks):
            os._exit(ENOUGH)

    with logged_to(None) as say:
        record(work)()


if __name__ == "__main__":
    main()
