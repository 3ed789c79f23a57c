"""Train a recipe (a YAML file) on this machine's GPUs or CPU; rerun to resume.

Options after -- override --settings, which override the recipe.
"""

import shlex
import signal
import sys
from collections.abc import Sequence

from fairseq_plugins.cli import needs_fairseq, run
from fairseq_plugins.data.prepared_folder import check_data
from fairseq_plugins.options import recipes
from fairseq_plugins.options.arguments import read
from fairseq_plugins.options.user_dirs import user_dirs_of
from fairseq_plugins.train.log import tell
from fairseq_plugins.train.request import TrainingRequest
from fairseq_plugins.train.supervise import supervise


def read_request(argv: Sequence[str]) -> TrainingRequest:
    """The request that the command line describes.

    Raises:
        ConfigurationError: the data, the recipe or a settings file cannot be used.
    """
    request = read(TrainingRequest, argv, "train", __doc__)
    request.recipe = recipes.find(request.recipe)
    check_data(request.data)
    folders = recipes.folders(request.recipe)
    request.settings = [recipes.find(name, folders) for name in request.settings]
    request.user_dir = user_dirs_of([request.recipe, *request.settings], request.user_dir)
    return request


def main(argv: Sequence[str]) -> int:
    return supervise(read_request(argv), argv)


def train_here(argv: Sequence[str]) -> int:
    """Train in this process, which `supervise` has started."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # `compat.stopping` takes it once there is state
        signal.signal(number, signal.SIG_DFL)
    request = read_request(argv)
    needs_fairseq("train", request.user_dir)
    from fairseq_plugins.train import launch, planning

    plan = planning.plan(request)
    if request.dry_run:
        launch.rehearse(plan)
        return 0
    tell(f"command: {shlex.join(plan.command)}")
    launch.train(plan)
    return 0


if __name__ == "__main__":
    sys.exit(run("train", train_here, sys.argv[1:]))
