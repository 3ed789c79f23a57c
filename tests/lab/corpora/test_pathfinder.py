"""Pathfinder: drawn pictures that keep the puzzle's promises, and their preparation."""

import os
import random

import numpy as np
import pytest
from PIL import Image

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import make_pathfinder, prepare_pathfinder
from fairseq_plugins.lab.corpora import pathfinder


@pytest.mark.parametrize("dashes", [5, 14])
def test_a_picture_has_what_the_puzzle_says(dashes):
    uniform = random.Random(f"test {dashes}").random
    for connected in (True, False):
        picture = pathfinder.draw(uniform, dashes, connected)
        levels = picture.levels
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
    Image.new("L", (2, 3)).save(pictures / "imgs/0/sample_4.png")
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
        "metadata/0.npy:4\tno PNG file, or a damaged one",
        "metadata/0.npy:5\tnot 32 x 32 grey levels of 8 bits: 2 x 3, L",
        "metadata/0.npy:6\tthe picture cannot be read: ",
        "metadata/0.npy:7\tno PNG file, or a damaged one",
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
            levels = np.asarray(Image.open(pictures / columns[0] / columns[1]))
            assert (text.split(), label) == ([str(level) for level in levels.ravel()], columns[3])
            found += 1
    assert found == 41
