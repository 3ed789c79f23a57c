"""Made-up images: shapes differ, and the preparation of CIFAR-10 reads their archive."""

import tarfile

import numpy as np
import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import make_images, prepare_images
from fairseq_plugins.lab.corpora import shapes
from fairseq_plugins.lab.corpora.cifar10 import CLASSES


def test_shapes_are_ten_and_differ():
    y, x = np.mgrid[-1:1:101j, -1:1:101j]
    masks = [shape(x, y) for shape in shapes.SHAPES.values()]
    assert len(masks) == len(CLASSES)
    for number, mask in enumerate(masks):
        assert 0.1 < mask.mean() < 0.8 and not mask[np.hypot(x, y) > 1].any()
        for other in masks[:number]:
            assert (mask != other).mean() > 0.05


def test_an_image_shows_its_shape_in_two_colours():
    for kind in range(10):
        levels = shapes.draw(np.random.RandomState(kind), kind)
        assert levels.shape == (3, 32, 32) and levels.dtype == np.uint8
        border = np.concatenate([levels[:, :3], levels[:, -3:]], axis=1)
        ground = np.median(border, axis=(1, 2))[:, None, None]
        assert (np.abs(border - ground).mean(axis=0) > 60).mean() < 0.01  # nothing reaches it
        assert 15 < (np.abs(levels - ground).mean(axis=0) > 45).sum() < 500


def test_a_plain_image_is_upright_and_black_on_white(tmp_path):
    for kind in range(10):
        levels = shapes.draw(np.random.RandomState(kind), kind, plain=True)
        assert (levels[0] == levels[1]).all() and (levels[0] == levels[2]).all()
        assert set(np.unique(levels)) == {0, 255}
        y, x = np.nonzero(levels[0] == 0)
        assert 15 < len(y) < 500
        # the first shape, a disc, is round; the eighth, a bar, lies
        tall, wide = np.ptp(y) + 1, np.ptp(x) + 1
        assert abs(tall - wide) <= 1 if kind == 0 else kind != 7 or wide > 3 * tall
    for name, words in (("plain", ["--plain"]), ("not", [])):
        make_images.main([str(tmp_path / name), "--images", "60", *words])
    sizes = [(tmp_path / name / make_images.NAME).stat().st_size for name in ("plain", "not")]
    assert sizes[0] < sizes[1] / 5  # no noise


def test_images_become_data_and_their_arguments_decide_them(tmp_path):
    images = []
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        words = [tmp_path / name, "--images", 120, "--seed", seed]
        assert make_images.main([str(word) for word in words]) == 0
        with tarfile.open(tmp_path / name / make_images.NAME) as archive:
            images.append([archive.extractfile(member).read() for member in archive])
    assert images[0] == images[1] != images[2]
    words = [tmp_path / "data", tmp_path / "one" / make_images.NAME, "--workers", 1]
    assert prepare_images.main([str(word) for word in words]) == 0
    counts = {}
    for split in ("train", "valid", "test"):
        labels = (tmp_path / f"data/text/raw/{split}.target").read_text().split()
        counts[split] = len(labels)
        assert set(labels) <= set(CLASSES)
    assert counts == {"train": 90, "valid": 10, "test": 20}
    with pytest.raises(ConfigurationError, match="binary.tar.gz exists: give another folder"):
        make_images.main([str(tmp_path / "one")])
