"""Made-up images: shapes differ, and the preparation of CIFAR-10 reads their archive."""

import tarfile

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import make_images, prepare_images
from fairseq_plugins.lab.corpora.cifar10 import CLASSES


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
