"""Terminology: words of the target language that must stand for words of the source."""

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import AnyPath, read_lines
from fairseq_plugins.text.processing import normalise


def read_terms(path: AnyPath) -> dict[str, str]:
    """The target term of each source term, from lines with both and a tab between them.

    Raises:
        ConfigurationError: the file cannot be read, has no terms, a line has other fields, or a
            term has two targets.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = [field.strip() for field in normalise(line).split("\t")]
        if len(fields) != 2 or not all(fields):
            raise ConfigurationError(
                f"--terms {path}: line {number} is not a source term, a tab and a target term"
            )
        before = terms.setdefault(*fields)
        if before != fields[1]:
            raise ConfigurationError(
                f"--terms {path}: line {number} gives '{fields[0]}' the target '{fields[1]}', but "
                f"a line before gives '{before}': remove one of them"
            )
    if not terms:
        raise ConfigurationError(f"--terms {path} is empty: give terms, or remove it")
    return terms
