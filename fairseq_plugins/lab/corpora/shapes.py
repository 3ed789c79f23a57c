"""Made-up images in the format of CIFAR-10's binary version: ten shapes in two colours.

A record is one byte for the class, then 3 x 1,024 bytes for red, green and blue, row by row
(Krizhevsky 2009). Shape, place, size, angle and colours are random, and each level has noise.
Plain ones are upright, black on white, without noise.
"""

import io
import math
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fairseq_plugins.files import replacing
from fairseq_plugins.lab.corpora.cifar10 import BLUE, GREEN, RED
from fairseq_plugins.lab.corpora.grey_levels import SIZE
from fairseq_plugins.system.progress import progress_bar

RADII, MARGIN = (6.0, 11.0), 3.0  # pixels: of the circle around a shape, and outside of it
GREY = np.array([RED, GREEN, BLUE]) / 10_000
CONTRAST, NOISE = 60.0, 15.0  # grey levels: between both colours; standard deviation
TEST_SHARE = 6  # CIFAR-10 has 50,000 images for training and 10,000 for test


def _square(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.maximum(abs(u), abs(v)) * math.sqrt(2)


# inside or not, at points of a unit circle around the shape's centre
SHAPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "disc": lambda u, v: np.hypot(u, v) < 1,
    "ring": lambda u, v: abs(np.hypot(u, v) - 0.75) < 0.25,
    "half disc": lambda u, v: (np.hypot(u, v) < 1) & (v > 0),
    "square": lambda u, v: _square(u, v) < 1,
    "frame": lambda u, v: abs(_square(u, v) - 0.75) < 0.25,
    "checkers": lambda u, v: (_square(u, v) < 1) & (u * v > 0),
    "triangle": lambda u, v: (v > -0.5) & (math.sqrt(3) * abs(u) + v < 1),
    "bar": lambda u, v: (abs(v) < 0.25) & (abs(u) < 0.95),
    "cross": lambda u, v: (np.minimum(abs(u), abs(v)) < 0.25) & (np.maximum(abs(u), abs(v)) < 0.95),
    "stripes": lambda u, v: (_square(u, v) < 1) & (np.sin(9 * v) > 0),
}


def draw(random: np.random.RandomState, kind: int, plain: bool = False) -> np.ndarray:
    """Draw an image of the shape with this number: 3 x 32 x 32 levels of 8 bits."""
    radius = random.uniform(*RADII)
    centre_x, centre_y = random.uniform(radius + MARGIN, SIZE - 1 - radius - MARGIN, 2)
    angle = 0.0 if plain else random.uniform(0, 2 * math.pi)
    y, x = np.mgrid[:SIZE, :SIZE]
    x, y = (x - centre_x) / radius, (y - centre_y) / radius
    u = math.cos(angle) * x + math.sin(angle) * y
    v = math.cos(angle) * y - math.sin(angle) * x
    inside = list(SHAPES.values())[kind](u, v)
    if plain:
        return np.where(inside, 0, 255).astype(np.uint8)[None].repeat(3, axis=0)
    colours = np.zeros((2, 3))
    while abs((colours[0] - colours[1]) @ GREY) < CONTRAST:
        colours = random.uniform(0, 255, (2, 3))
    levels = np.where(inside, *colours[..., None, None]) + random.normal(0, NOISE, (SIZE, SIZE))
    return levels.clip(0, 255).round().astype(np.uint8)


def write(archive: Path, count: int, seed: int, plain: bool = False) -> None:
    """Write an archive like cifar-10-binary.tar.gz, with a sixth of the images for test.

    All classes are equally frequent, in random order. The same arguments give the same images.
    """
    random = np.random.RandomState(seed)  # its stream stays the same across versions
    kinds = random.permutation(np.arange(count) % len(SHAPES))
    images = progress_bar(kinds, description="images", unit=" images")
    records = [bytes([kind]) + draw(random, kind, plain).tobytes() for kind in images]
    test = count // TEST_SHARE
    with replacing(archive) as part, tarfile.open(part, "w:gz") as file:
        for name, some in (("data_batch_1", records[test:]), ("test_batch", records[:test])):
            content = b"".join(some)
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
