"""The settings of a training, which its folder stores and a rerun compares (`run_folder`)."""

import argparse
import json
from pathlib import Path
from typing import Any

from fairseq.dataclass.configs import (
    CheckpointConfig,
    CommonConfig,
    DatasetConfig,
    DistributedTrainingConfig,
)

from fairseq_plugins.data.prepared_folder import dictionaries, fingerprint
from fairseq_plugins.train.batch_size import Batch
from fairseq_plugins.train.run_folder import PER_UPDATE

BEGIN = "finetune_from_model"
ENDS = ("bin", "idx")
# Options that may change when a training resumes: duration, logging, what is kept and
# validated, and the machine.
FREE = {"data", "update_freq", "max_update", "max_epoch", "stop_time_hours", "stop_min_lr"}
FREE |= {"no_progress_bar", "no_seed_provided", "tpu", "cuda_graphs"}
for _group in (CommonConfig, CheckpointConfig, DistributedTrainingConfig):
    FREE |= set(_group.__dataclass_fields__)
FREE |= {
    name
    for name in DatasetConfig.__dataclass_fields__
    if "valid" in name or name in ("num_workers", "data_buffer_size", "max_tokens", "batch_size")
}
# groups with options that change what is computed
FREE -= {"memory_efficient_fp16", "memory_efficient_bf16", "quantization_config_path"}
FREE -= {"model_parallel_size"}
# fairseq compares the best value with the next one even if the metric changed
FREE -= {"seed", BEGIN, "best_checkpoint_metric", "maximize_best_checkpoint_metric"}


def fingerprint_of(data: Path, *splits: str) -> str:
    """A checksum of the words and the tokens of splits, independent of the folder's path."""
    patterns = [
        f"{place}{split}*.{end}" for split in splits for place in ("", "*/") for end in ENDS
    ]
    tokens = [path for pattern in patterns for path in data.glob(pattern)]
    return fingerprint(sorted([*dictionaries(data), *tokens]))


def settled(args: argparse.Namespace, whole: Batch, data: Path, save_dir: Path) -> dict[str, Any]:
    """Every setting that the result of a training depends on, as JSON values.

    The initial checkpoint is stored relative to `save_dir` if it lies there, so that the folder can
    be moved.
    """
    values = {
        name: value
        for name, value in vars(args).items()
        if name not in FREE and not name.startswith("eval_")
    }
    for name in PER_UPDATE:
        size = getattr(whole, name)
        values[name] = size and size * whole.update_freq
    values["data"] = fingerprint_of(data, "train")
    if 0 < args.max_update == schedule_end(args):
        values["max_update"] = args.max_update
    begin = args.finetune_from_model
    if begin and Path(begin).is_relative_to(save_dir):
        values[BEGIN] = Path(begin).relative_to(save_dir).as_posix()
    return json.loads(json.dumps(values, default=str, sort_keys=True))


def schedule_end(args: argparse.Namespace) -> int:
    """The update at which the learning rate reaches its end; 0 if it never does.

    If their own lengths are not set, fairseq's cosine and tri_stage take that of the training.
    """
    cosine = args.lr_scheduler == "cosine" and args.lr_period_updates <= 0
    if cosine or (args.lr_scheduler == "tri_stage" and args.phase_ratio):
        return int(args.max_update)
    return int(getattr(args, "total_num_update", None) or 0)
