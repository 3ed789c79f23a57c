"""All repairs together."""

from fairseq import checkpoint_utils, options
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from fairseq_plugins import compat

compat.apply()


def test_applying_twice_changes_nothing_and_prints_nothing(capsys):
    functions = [
        (checkpoint_utils, "load_checkpoint_to_cpu"),
        (PathManager, "copy"),
        (data_utils, "batch_by_size"),
        (options, "parse_args_and_arch"),
        (distributed_utils, "call_main"),
        (distributed_utils, "all_gather_list"),
        (Trainer, "__init__"),
    ]
    assert all(hasattr(getattr(owner, name), "repaired_by") for owner, name in functions)
    places = functions + [(checkpoint_utils, "torch"), (data_utils, "np")]
    before = [getattr(owner, name) for owner, name in places]
    compat.apply()
    assert all(getattr(owner, name) is old for (owner, name), old in zip(places, before))
    assert capsys.readouterr() == ("", "")
