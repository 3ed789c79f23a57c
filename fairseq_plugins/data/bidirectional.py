"""Combine both directions of a prepared language pair in one training set.

Bidirectional pre-training trains a model first on both directions, with twice the data, and then on
one direction (BiT, Ding et al., EMNLP 2021; Bi-SimCut, Gao et al., NAACL 2022).
"""

import itertools
from pathlib import Path

from fairseq_plugins.data.binary import concatenate
from fairseq_plugins.data.preparation import Preparation
from fairseq_plugins.data.prepared_folder import Prepared, check_unsharded, fingerprint
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import copy
from fairseq_plugins.text.subwords import KINDS

JOINED = ("train", "valid")


def join_directions(pair: Path, destination: Path) -> dict[str, int]:
    """Write the sentence pairs of `pair`, then the same pairs with source and target swapped.

    Only train and valid get both directions; test is copied. Languages, dictionaries and subword
    model are those of `pair`, so a model trained on one folder can be fine-tuned on the other.
    There is no language token: the source language determines the target language.

    Args:
        pair: a prepared folder with a joined dictionary.
        destination: the folder to write.

    Returns:
        the number of pairs in train and valid.

    Raises:
        ConfigurationError: `pair` was not prepared for a language pair, has two different
            dictionaries, tagged sources or already both directions; or `destination` exists with
            other content.
    """
    prepared = Prepared(pair)
    languages, settings = prepared.languages, prepared.settings
    prepared.check_one_direction()
    check_unsharded(pair)
    if prepared.task == "summarization":
        raise ConfigurationError(
            f"{pair} was prepared for summarization, which has one direction: give a folder "
            "prepared for a language pair"
        )
    if settings.get("tag"):
        raise ConfigurationError(
            f"{pair} has sources with a tag, which a model would learn to write: distill with "
            "--no-tag"
        )
    names = [f"dict.{language}.txt" for language in languages]
    if (pair / names[0]).read_bytes() != (pair / names[1]).read_bytes():
        raise ConfigurationError(
            f"{pair} has one dictionary per language, but both directions need a joined one: "
            "prepare it with --joined-dictionary, or join them by join-dictionaries"
        )
    model = KINDS[prepared.processing.subword].file_name
    read = [pair / name for name in [*names, model]]
    read += sorted(pair.glob(f"*.{'-'.join(languages)}.*"))
    wanted = {**settings, "bidirectional": True, "pair": fingerprint(read)}
    with Preparation(destination, wanted) as preparation:
        if not preparation.finished:
            test = pair.glob(f"test.{'-'.join(languages)}.*")
            for name in (*names, model, *(path.name for path in test)):
                copy(pair / name, preparation.folder / name)
            joined = {}
            for split, side in itertools.product(JOINED, (0, 1)):
                name = f"{split}.{'-'.join(languages)}"
                both = [pair / f"{name}.{languages[number]}" for number in (side, 1 - side)]
                joined[split] = concatenate(both, preparation.folder / both[0].name)
            preparation.finish({"examples": joined})
    return preparation.results["examples"]
