"""fairseq-generate's output: read in the order of the test set, and complete or an error."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluation.generation import read_output

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
