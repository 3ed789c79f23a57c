"""Whether the files of a split are there, and which of its texts are shown."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluation.splits import check_files, evenly


def test_a_missing_file_is_named_beside_the_splits_that_are_there(tmp_path):
    for name in ("train.de-en.de.idx", "train.de-en.en.idx", "valid.de-en.de.idx"):
        (tmp_path / name).touch()
    wanted = [tmp_path / "train.de-en.de.idx", tmp_path / "valid.de-en.en.idx"]
    check_files("--split valid", wanted[:1], tmp_path, [])
    message = r"--split valid: .*valid.de-en.en.idx is missing; .* holds train, valid$"
    with pytest.raises(ConfigurationError, match=message):
        check_files("--split valid", wanted, tmp_path, tmp_path.glob("*.idx"))


def test_texts_to_show_are_spread():
    assert list(evenly(10, 3)) == [0, 3, 6] and list(evenly(2, 5)) == [0, 1]
    assert list(evenly(0, 4)) == []
