"""Terminology: words of the target language that must stand for words of the source."""

import re

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import AnyPath, read_lines
from fairseq_plugins.text.processing import normalise


class Terms:
    """Terms of a file with a source term, a tab and its target term in each line.

    Args:
        path: the file.

    Raises:
        ConfigurationError: it cannot be read, has no terms, or a line has other fields.
    """

    def __init__(self, path: AnyPath) -> None:
        self._target: dict[str, str] = {}
        for number, line in enumerate(read_lines(path), 1):
            fields = [field.strip() for field in normalise(line).split("\t")]
            if len(fields) != 2 or not all(fields):
                raise ConfigurationError(
                    f"--terms {path}: line {number} is not a source term, a tab and a target term"
                )
            self._target[fields[0]] = fields[1]
        if not self._target:
            raise ConfigurationError(f"--terms {path} is empty: give terms, or remove it")
        longest_first = sorted(map(re.escape, self._target), key=len, reverse=True)
        self._source = re.compile(rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)")

    def wanted(self, line: str) -> list[str]:
        """The target terms of the source terms that stand in a line as whole words."""
        return [self._target[match[0]] for match in self._source.finditer(normalise(line))]
