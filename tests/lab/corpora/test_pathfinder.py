"""Pathfinder: PNG files, drawn pictures that keep the puzzle's promises, and their preparation."""

import os
import random
import struct
import zlib

import numpy as np
import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import make_pathfinder, prepare_pathfinder
from fairseq_plugins.lab.corpora import pathfinder, png


def filtered(image, kinds):
    """A PNG file of a square image whose lines have these filters, by the specification."""
    size, x = len(image), np.pad(image.astype(int), ((1, 0), (1, 0)))
    left, up, corner, x = x[1:, :-1], x[:-1, 1:], x[:-1, :-1], x[1:, 1:]
    near = np.stack([left, up, corner])
    paeth = np.take_along_axis(near, abs(left + up - corner - near).argmin(axis=0)[None], 0)[0]
    predicted = np.stack([0 * x, left, up, (left + up) // 2, paeth])[kinds, np.arange(size)]
    lines = np.column_stack([kinds, (x - predicted) % 256]).astype(np.uint8).tobytes()
    plain, body = png.encode(size, size, image.tobytes()), zlib.compress(lines)
    chunks = [body[:7], body[7:]]  # in two parts, as large files have
    parts = [struct.pack(">I", len(c)) + b"IDAT" + c + b"\0\0\0\0" for c in chunks]
    return plain[: plain.index(b"IDAT") - 4] + b"".join(parts) + plain[plain.index(b"IEND") - 4 :]


def test_images_come_back_whatever_their_filters():
    image = np.random.RandomState(1).randint(0, 256, (8, 8)).astype(np.uint8)
    assert png.decode(png.encode(8, 8, image.tobytes())) == (8, 8, image.tobytes())
    assert png.decode(filtered(image, [4, 1, 2, 3, 4, 0, 3, 1])) == (8, 8, image.tobytes())


@pytest.mark.parametrize("dashes", [5, 14])
def test_a_picture_has_what_the_puzzle_says(dashes):
    uniform = random.Random(f"test {dashes}").random
    for connected in (True, False):
        picture = pathfinder.draw(uniform, dashes, connected)
        levels = np.frombuffer(picture.levels, np.uint8).reshape(32, 32)
        short = max(1, dashes // 3)
        assert [len(path) for path in picture.paths] == [dashes] * 2 + [short] * (20 // short)
        # dots are at ends of long paths, of the same one only where they are connected
        ends = [{tuple(path[0, 0]), tuple(path[-1, 1])} for path in picture.paths]
        dots = set(map(tuple, picture.dots))
        assert np.linalg.norm(picture.dots[0] - picture.dots[1]) >= 7
        assert len(dots) == 2 and (ends[0] == dots) == connected == picture.connected
        assert connected or (len(ends[0] & dots), len(ends[1] & dots)) == (1, 1)
        for x, y in picture.dots:
            assert levels[round(y), round(x)] == 255
        for number, path in enumerate(picture.paths):
            lengths = np.linalg.norm(path[:, 1] - path[:, 0], axis=1)
            gaps = np.linalg.norm(path[1:, 0] - path[:-1, 1], axis=1)
            assert np.allclose(lengths, 2) and np.allclose(gaps, 1)
            for x, y in path.mean(axis=1):
                assert levels[round(y), round(x)] > 0
            for other in picture.paths[:number]:  # they neither touch nor cross
                near = np.linalg.norm(path.reshape(-1, 1, 2) - other.reshape(-1, 2), axis=2)
                assert near.min() >= 1.5
        assert 0.3 < (levels == 0).mean() < 0.9


def prepare(folder, pictures, *words):
    words = [folder, pictures, "--workers", 1, "--train", 24, "--held-out", 8, *words]
    assert prepare_pathfinder.main([str(word) for word in words]) == 0
    return folder


def test_pictures_become_grey_levels_and_bad_ones_are_counted(tmp_path):
    pictures = tmp_path / "curv_contour_length_4"
    assert make_pathfinder.main([str(pictures), "--pictures", "46", "--dashes", "4"]) == 0
    with pytest.raises(ConfigurationError, match="metadata exists"):
        make_pathfinder.main([str(pictures)])
    (pictures / "imgs/0/sample_3.png").write_bytes(b"")
    (pictures / "imgs/0/sample_4.png").write_bytes(png.encode(2, 3, b"abcdef"))
    (pictures / "imgs/0/sample_5.png").unlink()
    whole = (pictures / "imgs/0/sample_6.png").read_bytes()
    (pictures / "imgs/0/sample_6.png").write_bytes(whole[:-40])
    with (pictures / "metadata/0.npy").open("a") as file:
        file.write(
            "imgs/0 sample_0.png\nimgs/0 sample_1.png 1 2\n/dev zero 1 1\n.. other.png 1 1\n"
        )
    (tmp_path / "other.png").write_bytes(whole)
    (pictures / "imgs/0/sample_7.png").unlink()
    os.mkfifo(pictures / "imgs/0/sample_7.png")
    folder = prepare(tmp_path / "data", pictures, "--train", 48 - 16)
    removed = (folder / "removed.txt").read_text()
    for line in (
        "all\tmetadata/0.npy:47\tnot 4 columns or more: 2",
        "all\tmetadata/0.npy:48\tthe label is neither 0 nor 1: 2",
        "metadata/0.npy:49\tthe picture cannot be read: /dev/zero: it is outside",
        "metadata/0.npy:50\tthe picture cannot be read: ../other.png: it is outside",
        "metadata/0.npy:8\tthe picture cannot be read: imgs/0/sample_7.png: it is not a regular",
        "metadata/0.npy:4\tan empty file",
        "metadata/0.npy:5\tanother size than 32 x 32: 2 x 3",
        "metadata/0.npy:6\tthe picture cannot be read: ",
        "metadata/0.npy:7\ta damaged PNG file",
    ):
        assert line in removed
    report = (folder / "report.txt").read_text()
    assert "Filtered out: 9 texts" in report and "takes 1,025 positions" in report
    rows = (pictures / "metadata/0.npy").read_text().splitlines()
    found = 0
    for split in ("train", "valid", "test"):
        raw = folder / "text/raw"
        texts, labels, ids = (
            (raw / f"{split}.{end}").read_text().splitlines() for end in ("source", "target", "id")
        )
        for text, label, name in zip(texts, labels, ids):
            columns = rows[int(name.partition(":")[2]) - 1].split()
            _, _, levels = png.decode((pictures / columns[0] / columns[1]).read_bytes())
            assert (text.split(), label) == ([str(level) for level in levels], columns[3])
            found += 1
    assert found == 41
