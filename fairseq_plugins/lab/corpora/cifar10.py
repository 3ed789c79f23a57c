"""Image of the Long-Range Arena: which of ten classes does a picture in grey levels show?

Source: CIFAR-10 (Krizhevsky 2009) in its binary version, cifar-10-binary.tar.gz. A record is one
byte for the class, then 3 x 1,024 bytes for red, green and blue, row by row. As in Tay et al.
(2020), the grey level is ``0.299 R + 0.587 G + 0.114 B``.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fairseq_plugins.data.archives import read_members
from fairseq_plugins.data.readers import Example
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.corpora.grey_levels import SIZE, as_text

FILE = re.compile(r"(?:^|/)(data_batch_\d|test_batch)\.bin$")
CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()
RED, GREEN, BLUE = 2989, 5870, 1140  # ten-thousandths of a grey level
VALID_EVERY = 10  # of the images for training


def images(archive: Path, shrink: int) -> Iterator[Example]:
    """The images as texts of grey levels, with their classes. Every tenth of train goes to valid.

    Args:
        archive: cifar-10-binary.tar.gz.
        shrink: see `as_text`.

    Raises:
        ConfigurationError: the archive is not the binary version.
    """
    number = 0
    for name, content in read_members(archive, lambda name: FILE.search(name) is not None):
        size = 1 + 3 * SIZE**2
        if content is None or len(content) % size or max(content[::size], default=0) > 9:
            raise ConfigurationError(
                f"{archive}: {name} is not a file of CIFAR-10's binary version"
            )
        for place, record in enumerate(np.frombuffer(content, np.uint8).reshape(-1, size)):
            split = "test" if "test_batch" in name else "train"
            if split == "train":
                number += 1
                split = "valid" if number % VALID_EVERY == 0 else "train"
            red, green, blue = record[1:].reshape(3, SIZE, SIZE).astype(int)
            levels = 511 * (RED * red + GREEN * green + BLUE * blue) // (2 * 255 * 10_000)
            text = as_text(levels, shrink)
            yield Example(split, f"{name.rpartition('/')[2]}:{place}", text, CLASSES[record[0]])
    if not number:
        raise ConfigurationError(
            f"{archive} holds no data_batch_1.bin: give cifar-10-binary.tar.gz, the version for C "
            "programs (the one for Python holds pickles, which can run code)"
        )
