"""Makes a lexical shortlist from the training data with the aligner of the package sil-thot."""

from pathlib import Path
from typing import Any, Dict, List

import numpy as np

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.serving.shortlist import FILE

from .quantization import to_8_bits

ROUNDS = 5  # of the aligner's training
COMMON = 100  # most frequent target tokens, which every sentence may write
MOST = 50  # target tokens of one source token
LEAST = 1e-3  # their probability


def write_shortlist(model: Any, task: Any, out: Path, int8: bool) -> None:
    """Write the file that `serving.shortlist.Shortlist` reads.

    Args:
        model: in evaluation mode.
        task: the task, whose prepared folder has the training data.
        out: the folder of the export.
        int8: whether to store 8-bit vectors.

    Raises:
        ConfigurationError: the aligner or the training data are missing.
    """
    projection = model.decoder.output_projection
    vectors = projection.weight.detach().float().numpy()
    biases = np.zeros(len(vectors), np.float32)
    if projection.bias is not None:
        biases = projection.bias.detach().float().numpy()
    arrays = dict(lexicon(task), biases=biases)
    if int8:
        vectors, scales = to_8_bits(vectors)
        arrays["scales"] = scales[:, 0]
    np.savez(out / FILE, vectors=vectors, **arrays)


def lexicon(task: Any) -> Dict[str, np.ndarray]:
    """The arrays `common`, `starts` and `targets` of a shortlist.

    A source token may become the `MOST` target tokens that Eflomal (Östling & Tiedemann 2016)
    finds most probable, if their probability is at least `LEAST`.
    """
    try:
        from thot.alignment import EflomalAlignmentModel
    except ImportError:
        raise ConfigurationError(
            "--shortlist needs sil-thot: pip install 'fairseq-plugins[shortlist]'"
        ) from None
    try:
        task.load_dataset("train")
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"--shortlist needs the training data of the prepared folder: {error}"
        ) from None
    pairs, aligner = task.dataset("train"), EflomalAlignmentModel()
    counts = np.zeros(len(task.target_dictionary), np.int64)
    for index in range(len(pairs.src)):
        source, target = (side[index][:-1].tolist() for side in (pairs.src, pairs.tgt))
        aligner.add_sentence_pair(*([str(token) for token in side] for side in (source, target)))
        counts += np.bincount(target, minlength=len(counts))
    aligner.start_training()
    for _ in range(ROUNDS):
        aligner.train()
    aligner.end_training()
    special = task.target_dictionary.nspecial
    frequent = np.argsort(-counts, kind="stable")[:COMMON]
    found: List[List[int]] = []
    for token in range(len(task.source_dictionary)):
        word = aligner.get_src_word_index(str(token))
        likely = []
        if aligner.get_src_word(word) == str(token):  # else it is not in the training data
            likely = sorted(aligner.get_translations(word, LEAST), key=lambda pair: -pair[1])
        names = [aligner.get_trg_word(number) for number, _ in likely[:MOST]]
        found.append(sorted(int(name) for name in names if name.isdigit()))
    return {
        "common": np.union1d(frequent, np.arange(2, special)).astype(np.int64),
        "starts": np.cumsum([0] + [len(targets) for targets in found]),
        "targets": np.array([t for targets in found for t in targets], np.int64),
    }
