"""Image: CIFAR-10's records become grey levels and classes; other archives are refused."""

import io
import tarfile

import numpy as np
import pytest

from fairseq_plugins.data.prepared_folder import load_cut
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import prepare_images
from fairseq_plugins.lab.corpora.cifar10 import CLASSES


def write_archive(path, **files):
    with tarfile.open(path, "w:gz") as archive:
        for name, records in files.items():
            content = records if isinstance(records, bytes) else records.tobytes()
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def prepare(folder, *words):
    words = [folder, *words, "--workers", 1]
    assert prepare_images.main([str(word) for word in words]) == 0
    return folder


@pytest.fixture(scope="module")
def records():
    generator = np.random.RandomState(1)
    drawn = generator.randint(0, 256, (36, 3073)).astype(np.uint8)
    drawn[:, 0] = (np.arange(36) * 3 + np.arange(36) // 10) % 10
    return drawn


@pytest.fixture(scope="module")
def archive(records, tmp_path_factory):
    path = tmp_path_factory.mktemp("cifar10") / "cifar-10-binary.tar.gz"
    splits = {"data_batch_1": records[:12], "data_batch_2": records[12:22]}
    return write_archive(path, **splits, test_batch=records[22:], readme=b"")


@pytest.mark.parametrize("shrink", [1, 2, 4])
def test_images_are_grey_levels_and_their_class(records, archive, tmp_path, shrink):
    folder = prepare(tmp_path / "data", archive, "--shrink", shrink)
    tenth = [n for n in range(22) if n % 10 == 9]
    train = [n for n in range(22) if n not in tenth]
    side = 32 // shrink
    for split, numbers in (("train", train), ("valid", tenth), ("test", range(22, 36))):
        raw = folder / "text/raw"
        labels = (raw / f"{split}.target").read_text().split()
        assert labels == [CLASSES[records[n, 0]] for n in numbers]
        images = (raw / f"{split}.source").read_text().splitlines()
        assert len(images) == len(labels)
        for image, n in zip(images, numbers):
            grey = np.array([0.2989, 0.5870, 0.1140]) @ records[n, 1:].reshape(3, 1024)
            pixels = np.floor(255.5 * grey / 255).reshape(32, 32)  # as Tay et al.
            levels = np.array(image.split(), dtype=int).reshape(side, side)
            blocks = pixels.reshape(side, shrink, side, shrink).mean(axis=(1, 3))
            assert np.abs(levels - blocks).max() <= (0 if shrink == 1 else 0.5)
    assert f"takes {side**2 + 1:,} positions" in (folder / "report.txt").read_text()
    with pytest.raises(ConfigurationError, match="was made from images"):
        load_cut(folder)


def test_another_archive_is_refused(records, tmp_path):
    path = write_archive(tmp_path / "python.tar.gz", batches=b"a pickle")
    with pytest.raises(ConfigurationError, match="python.tar.gz holds no data_batch_1.bin"):
        prepare(tmp_path / "data", path)
    for content in (records[:2].tobytes()[:-1], bytes([10]) + records[0, 1:].tobytes()):
        write_archive(path, data_batch_1=content)
        with pytest.raises(
            ConfigurationError, match="data_batch_1.bin is not a file of CIFAR-10's"
        ):
            prepare(tmp_path / "data", path)
    with pytest.raises(ConfigurationError, match="--shrink.*3"):
        prepare(tmp_path / "data", path, "--shrink", 3)
