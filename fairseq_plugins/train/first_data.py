"""Other data on which the training of some rows begins, made from the prepared folder."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.data.bidirectional import join_directions
from fairseq_plugins.data.like import settings_like
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.data.pretraining import KINDS, Pretraining
from fairseq_plugins.data.readers import RAW, Inputs, find_input
from fairseq_plugins.data.summarization import SHARED_BY_LIKE, SIDES, prepare_files
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.system.workers import default_workers
from fairseq_plugins.text.subwords import SentencePiece


def prepare_pretraining(prepared: Path, destination: Path, kind: str) -> None:
    """Make pretraining data from a prepared folder, with its pieces; its summaries are not used.

    Extracted summaries have as many sentences as the folder's summaries have on average.

    Args:
        prepared: a folder prepared for summarization.
        destination: the folder to make.
        kind: the kind of `Pretraining`.

    Raises:
        ConfigurationError: `prepared` was not prepared for summarization, or lacks its text.
    """
    splits = ("train", "valid")
    texts = [f"{RAW}/{split}.source" for split in splits]
    for name in (SentencePiece.file_name, *(f"dict.{side}.txt" for side in SIDES), *texts):
        if not (prepared / name).is_file():
            raise ConfigurationError(
                f"DATA {prepared} lacks {name}: rerun its preparation, or give another folder that "
                "prepare-summarization or prepare-cnn-dm made"
            )
    settings = settings_like(prepared, SIDES, SHARED_BY_LIKE, {})
    folder = Prepared(prepared)
    settings.update(folder.processing._asdict())
    results = folder.record.results
    separators = results["sides"]["train.target"]["separators"]
    sentences = max(1, round(1 + separators / results["examples"]["train"]))
    pretraining = Pretraining(kind, sentences)
    files = {split: [find_input(split, prepared / RAW / split, SIDES[:1])] for split in splits}
    inputs = Inputs(files, ["article", "highlights"])
    prepare_files(destination, inputs, settings, default_workers(), pretraining, prepared)


# `Row.begins` -> a function that makes a folder (the second argument) from the prepared one, and
# leaves it as it is if it is finished
FIRST_DATA: dict[str, Callable[[Path, Path], Any]] = {
    "both-directions": join_directions,
    **{kind: partial(prepare_pretraining, kind=kind) for kind in KINDS},
}
