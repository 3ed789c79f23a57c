"""Makes a lexical shortlist from the training data with the aligner of the package sil-thot."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.serving.shortlist import FILE, ZERO

from .architecture import bias_of
from .prepared import prepared_pairs

ROUNDS = 5  # training rounds of the aligner
COMMON = 100  # most frequent target tokens, which every sentence may write
MOST = 100  # translations of a token per direction; a source gets both kinds
LEAST = {"forward": 1e-4, "backward": 1e-3}  # minimum probability


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
    biases = bias_of(projection).float().numpy()
    arrays: dict[str, Any] = dict(lexicon(task), biases=biases)
    if int8:
        from .quantization import to_8_bits  # imports onnx

        signed, scales = to_8_bits(vectors)
        # onnxruntime's workaround for overflow (see `serving.folder`) is only for constant weights
        vectors = (signed.astype(np.int16) + ZERO).astype(np.uint8)
        arrays["scales"] = scales[:, 0]
    np.savez(out / FILE, vectors=vectors, **arrays)


def lexicon(task: Any) -> dict[str, np.ndarray]:
    """The arrays `common`, `starts` and `targets` of a shortlist.

    Source token s may become target token t if p(t | s) or p(s | t) is large enough. The
    probabilities are those of Eflomal (Östling & Tiedemann 2016).

    Raises:
        ConfigurationError: the aligner or the training data are missing.
    """
    pairs, dictionary = check_shortlist(task), task.target_dictionary
    sources, targets = (
        [side[index][:-1].tolist() for index in range(len(side))] for side in (pairs.src, pairs.tgt)
    )
    found: list[set[int]] = [set() for _ in range(len(task.source_dictionary))]
    for token, likely in _translations(sources, targets, LEAST["forward"]):
        found[token].update(likely)
    for token, likely in _translations(targets, sources, LEAST["backward"]):
        for source in likely:
            found[source].add(token)
    counts = Counter(itertools.chain.from_iterable(targets))
    common = {token for token, _ in counts.most_common(COMMON)}
    return {
        "common": np.array(sorted(common | {dictionary.eos(), dictionary.unk()})),
        "starts": np.cumsum([0] + [len(targets) for targets in found]),
        "targets": np.array([t for targets in found for t in sorted(targets)], np.int64),
    }


def check_shortlist(task: Any) -> Any:
    """The training data of the task.

    Raises:
        ConfigurationError: the aligner or the training data are missing.
    """
    try:
        import thot.alignment  # noqa: F401
    except ImportError:
        raise ConfigurationError("--shortlist needs sil-thot: pip install sil-thot") from None
    try:
        return prepared_pairs(task, "train")
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"--shortlist needs the training data of the prepared folder: {error}"
        ) from None


def _translations(
    sources: list[list[int]], targets: list[list[int]], least: float
) -> Iterator[tuple[int, list[int]]]:
    """Each source token with its most probable target tokens."""
    from thot.alignment import EflomalAlignmentModel

    aligner = EflomalAlignmentModel()
    for source, target in zip(sources, targets):
        aligner.add_sentence_pair([*map(str, source)], [*map(str, target)])
    aligner.start_training()
    for _ in range(ROUNDS):
        aligner.train()
    aligner.end_training()
    for token in sorted(set(itertools.chain.from_iterable(sources))):
        number = aligner.get_src_word_index(str(token))
        likely = sorted(aligner.get_translations(number, least), key=lambda pair: -pair[1])
        words = [aligner.get_trg_word(number) for number, _ in likely[:MOST]]
        # the aligner has special words for unknown and unaligned ones
        yield token, [int(word) for word in words if word.isdigit()]
