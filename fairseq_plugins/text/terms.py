"""Terminology: words of the target language that must stand for words of the source."""

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import AnyPath, read_lines
from fairseq_plugins.text.processing import normalise


def read_terms(path: AnyPath) -> dict[str, str]:
    """The target term of each source term, from lines with both and a tab between them.

    Raises:
        ConfigurationError: the file cannot be read, has no terms, or a line has other fields.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), 1):
        fields = [field.strip() for field in normalise(line).split("\t")]
        if len(fields) != 2 or not all(fields):
            raise ConfigurationError(
                f"--terms {path}: line {number} is not a source term, a tab and a target term"
            )
        terms[fields[0]] = fields[1]
    if not terms:
        raise ConfigurationError(f"--terms {path} is empty: give terms, or remove it")
    return terms
