"""Pathfinder of the Long-Range Arena: does a dashed path connect the two dots of a picture?

Source: Linsley et al. (2018), in the pictures of 32 x 32 of Tay et al. (2020),
`lra_release/pathfinder32/curv_contour_length_14` (or `_9`, or `curv_baseline`). Format: a folder
with `metadata/N.npy`, which are text, and pictures in PNG. A line of metadata has, separated by
spaces, the picture's folder and name, a number, the label (1: connected), and how it was drawn.
The release has some empty picture files, which are skipped, as in its code.

`write` draws such pictures: two long paths of dashes, shorter ones that distract, and dots at both
ends of one long path, or at an end of each. It follows the description of the puzzle, with sizes
that the release names; its pictures are not those of the release.
"""

import io
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairseq_plugins.data.readers import Example, Unusable, numbered_lines
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_named, write_lines
from fairseq_plugins.lab.corpora.grey_levels import SIZE, as_text
from fairseq_plugins.system.progress import progress_bar

DASH, GAP, THICKNESS, RADIUS = 2.0, 1.0, 0.5, 1.5  # pixels, as in the release
EDGE = 2.0  # from a dash to the border
APART, DOTS_APART = 2.0, 7.0  # between paths, and between dots
MOST_TURN = 0.6  # radians from dash to dash
TURNS, PATHS, PICTURES = 8, 100, 200  # tries before a path, a picture or the whole is given up
FINE = 4
DISC = [  # lines and half the widths of the disc of cells that a point takes
    (step, int(math.sqrt((APART * FINE) ** 2 - step**2)))
    for step in range(-int(APART * FINE), int(APART * FINE) + 1)
]
PER_FILE = 1000


def pillow() -> Any:
    """Pillow's module of images.

    Raises:
        ConfigurationError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise ConfigurationError("pictures need Pillow: pip install pillow") from None
    return Image


def pictures(folder: Path) -> Iterator[Example]:
    """The pictures that the metadata of a folder names: their paths within it as texts, and labels.

    Raises:
        ConfigurationError: the folder has no metadata, or a file of it cannot be read; or Pillow is
            missing.
    """
    pillow()
    files = sorted(folder.glob("metadata/*.npy"), key=lambda path: (len(path.name), path.name))
    if not files:
        raise ConfigurationError(
            f"{folder} has no metadata/*.npy: give the folder of one difficulty, such as "
            "pathfinder32/curv_contour_length_14"
        )
    for file in files:
        for number, line in numbered_lines(file):
            columns = (line or b"").decode("utf-8", "replace").split()
            problem = "" if len(columns) >= 4 else f"not 4 columns or more: {len(columns)}"
            if not problem and columns[3] not in ("0", "1"):
                problem = f"the label is neither 0 nor 1: {columns[3]}"
            place = f"metadata/{file.name}:{number}"
            if problem:
                yield Example("all", place, "", "", problem)
            else:
                yield Example("all", place, f"{columns[0]}/{columns[1]}", columns[3])


def read_picture(document: Example, folder: Path, shrink: int) -> Example:
    """The document with the grey levels of the picture that its text names, see `as_text`.

    Args:
        document: its text is a path within `folder`.
        folder: has the pictures; no other file is read.
        shrink: see `as_text`.

    Raises:
        Unusable: the picture cannot be read.
    """
    if document.problem:
        return document
    try:
        content = read_named(folder, document.source)
    except OSError as error:
        raise Unusable(f"the picture cannot be read: {document.source}: {error.strerror}") from None
    try:
        with pillow().open(io.BytesIO(content), formats=["PNG"]) as picture:
            found = f"{picture.width} x {picture.height}, {picture.mode}"
            levels = np.asarray(picture) if found == f"{SIZE} x {SIZE}, L" else None
    except Exception:  # Pillow's errors have no common class
        raise Unusable("no PNG file, or a damaged one") from None
    if levels is None:
        raise Unusable(f"not {SIZE} x {SIZE} grey levels of 8 bits: {found}")
    return document._replace(source=as_text(levels, shrink))


class Picture(NamedTuple):
    """Grey levels, SIZE x SIZE; whether the dots are connected; and where paths and dots are.

    `paths` are dashes x 2 x 2: both ends of each dash, x before y. `dots` are 2 x 2.
    """

    levels: np.ndarray
    connected: bool
    paths: list[np.ndarray]
    dots: np.ndarray


class Space:
    """Where paths may still go: a grid of cells, `FINE` of them a pixel."""

    def __init__(self, cells: bytearray | None = None):
        self.cells = cells or bytearray((FINE * SIZE) ** 2)

    def copy(self) -> "Space":
        return Space(self.cells[:])

    def is_free(self, x: float, y: float) -> bool:
        """Whether a point keeps its distance from the border and from taken space."""
        inside = EDGE <= min(x, y) and max(x, y) <= SIZE - 1 - EDGE
        return inside and not self.cells[int(FINE * y) * FINE * SIZE + int(FINE * x)]

    def take(self, x: float, y: float) -> None:
        """Take the cells within `APART` of a point."""
        width, column, line = FINE * SIZE, int(FINE * x), int(FINE * y)
        for step, half in DISC:
            if 0 <= line + step < width:
                first, last = max(0, column - half), min(width, column + half + 1)
                start = (line + step) * width
                self.cells[start + first : start + last] = b"\1" * (last - first)


def draw_path(uniform: Callable[[], float], dashes: int, space: Space) -> np.ndarray | None:
    """Draw a path and take its space, or return None if its random start leads nowhere.

    Args:
        uniform: returns random numbers from [0, 1).
        dashes: its length.
        space: the room that other paths leave.

    Returns:
        dashes x 2 x 2, the ends of each dash.
    """
    inner = SIZE - 1 - 2 * EDGE
    x, y, angle = EDGE + inner * uniform(), EDGE + inner * uniform(), 2 * math.pi * uniform()
    path: list[list[tuple[float, float]]] = []
    gap, most_turn = 0.0, 0.0  # before the first dash
    own = space.copy()
    while len(path) < dashes:
        for _ in range(TURNS):
            turned = angle + (2 * uniform() - 1) * most_turn
            cos, sin = math.cos(turned), math.sin(turned)
            steps = (gap, gap + DASH / 2, gap + DASH)
            dash = [(x + step * cos, y + step * sin) for step in steps]
            if all(own.is_free(*point) for point in dash):
                break
        else:
            return None
        for point in path[-1] if path else ():  # the next dash may be near this one
            own.take(*point)
        path.append(dash)
        (x, y), angle, gap, most_turn = dash[-1], turned, GAP, MOST_TURN
    for point in path[-1]:
        own.take(*point)
    space.cells = own.cells
    return np.array(path)[:, ::2]


def draw(uniform: Callable[[], float], dashes: int, connected: bool) -> Picture:
    """Draw a picture.

    Args:
        uniform: returns random numbers from [0, 1).
        dashes: the length of the two long paths. A third of it is that of the others, which have
            20 dashes together.
        connected: whether the dots are on the same path.

    Raises:
        ConfigurationError: paths of this length do not fit.
    """
    short = max(1, dashes // 3)
    lengths = [dashes] * 2 + [short] * (20 // short)
    for _ in range(PICTURES):
        space, paths = Space(), []
        for length in lengths:
            tries = (draw_path(uniform, length, space) for _ in range(PATHS))
            path = next((each for each in tries if each is not None), None)
            if path is None:
                break
            paths.append(path)
        else:
            dots = np.array([paths[0][0, 0], paths[0 if connected else 1][-1, 1]])
            if np.linalg.norm(dots[0] - dots[1]) < DOTS_APART:
                continue
            return Picture(_levels(paths, dots), connected, paths, dots)
    raise ConfigurationError(f"--dashes {dashes}: such long paths do not fit: give fewer")


def _levels(paths: list[np.ndarray], dots: np.ndarray) -> np.ndarray:
    """The grey level of each pixel: 255 in a dash or a dot, and 0 from half a pixel outside."""
    y, x = np.mgrid[:SIZE, :SIZE]
    pixels = np.stack([x, y], axis=-1).reshape(-1, 1, 2)
    dashes = np.concatenate(paths)
    along = dashes[:, 1] - dashes[:, 0]
    share = ((pixels - dashes[:, 0]) * along).sum(axis=-1) / (along**2).sum(axis=-1)
    nearest = dashes[:, 0] + share.clip(0, 1)[..., None] * along
    to_dash = np.linalg.norm(pixels - nearest, axis=-1).min(axis=1) - THICKNESS / 2
    to_dot = np.linalg.norm(pixels - dots, axis=-1).min(axis=1) - RADIUS
    level = 255 * (0.5 - np.minimum(to_dash, to_dot)).clip(0, 1)
    return level.round().astype(np.uint8).reshape(SIZE, SIZE)


def write(folder: Path, count: int, dashes: int, seed: int) -> None:
    """Write pictures and their metadata in the release's format; half are connected.

    The same arguments give the same pictures.
    """
    uniform = random.Random(f"pathfinder {seed} {dashes}").random
    bar = progress_bar(range(count), description="pictures", unit=" pictures")
    lines: list[str] = []
    for number in bar:
        picture = draw(uniform, dashes, bool(number % 2))
        part, name = f"imgs/{number // PER_FILE}", f"sample_{number % PER_FILE}.png"
        (folder / part).mkdir(parents=True, exist_ok=True)
        pillow().fromarray(picture.levels).save(folder / part / name)
        lines.append(f"{part} {name} {number} {int(picture.connected)} {dashes}")
        if len(lines) == PER_FILE or number == count - 1:
            write_lines(folder / "metadata" / f"{number // PER_FILE}.npy", lines)
            lines = []
