"""What test sets share: their files, and which texts are shown."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.test_sets import TestSet, check_files


def test_a_missing_file_is_named_beside_the_splits_that_are_there(tmp_path):
    for name in ("train.de-en.de.idx", "train.de-en.en.idx", "valid.de-en.de.idx"):
        (tmp_path / name).touch()
    wanted = [tmp_path / "train.de-en.de.idx", tmp_path / "valid.de-en.en.idx"]
    check_files("--split valid", wanted[:1], tmp_path, [])
    message = r"--split valid: .*valid.de-en.en.idx is missing; .* holds train, valid$"
    with pytest.raises(ConfigurationError, match=message):
        check_files("--split valid", wanted, tmp_path, tmp_path.glob("*.idx"))


class Numbers(TestSet):
    def columns(self, output):
        return {"text": range(self.total), "reference": output}


def test_texts_to_show_are_spread():
    test = Numbers()
    for total, count, expected in ((10, 3, [0, 3, 6]), (2, 5, [0, 1]), (0, 4, [])):
        test.total = total
        shown = [f"  text        {n}\n  reference   {n * n}\n" for n in expected]
        assert list(test.examples([n * n for n in range(total)], count)) == shown
