"""What test sets share: their files, the output of models, and which texts are shown."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.test_sets import TestSet, check_files, read_output


def test_a_missing_file_is_named_beside_the_splits_that_are_there(tmp_path):
    for name in ("train.de-en.de.idx", "train.de-en.en.idx", "valid.de-en.de.idx"):
        (tmp_path / name).touch()
    wanted = [tmp_path / "train.de-en.de.idx", tmp_path / "valid.de-en.en.idx"]
    check_files("--split valid", wanted[:1], tmp_path, [])
    message = r"--split valid: .*valid.de-en.en.idx is missing; .* holds train, valid$"
    with pytest.raises(ConfigurationError, match=message):
        check_files("--split valid", wanted, tmp_path, tmp_path.glob("*.idx"))


class Numbers(TestSet):
    def columns(self, found):
        return {"text": range(self.total), "reference": found}


def test_texts_to_show_are_spread():
    test = Numbers()
    for total, count, expected in ((10, 3, [0, 3, 6]), (2, 5, [0, 1]), (0, 4, [])):
        test.total = total
        shown = [f"  text      {n}\n  reference {n * n}\n" for n in expected]
        assert list(test.examples([n * n for n in range(total)], count)) == shown


REFERENCES = ["the first sentence .", "a second one", "and\ta third"]


def write(path, numbers):
    lines = ["INFO | fairseq | S-1 is no line of a sentence"]
    for number in numbers:  # fairseq prints the longest first, and n-best lists best first
        lines += [f"S-{number}\tQuelle {number}", f"T-{number}\t{REFERENCES[number]}"]
        for rank, text in enumerate([f"translation\t{number}", "a worse one"]):
            lines += [f"H-{number}\t-0.{rank}\tx", f"D-{number}\t-0.{rank}\t{text}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_lines_are_in_the_order_of_the_test_set(tmp_path):
    log = write(tmp_path / "log", [1, 0, 2])
    assert read_output(log, 3) == [f"translation\t{number}" for number in range(3)]


@pytest.mark.parametrize("numbers, total", [([0, 2], 3), ([0, 1], 3), ([0, 1], 1), ([], 1)])
def test_missing_lines_are_an_error(tmp_path, numbers, total):
    message = f"log has {len(numbers)} of {total} sentences"
    with pytest.raises(ConfigurationError, match=message):
        read_output(write(tmp_path / "log", numbers), total)
