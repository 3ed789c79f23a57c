"""What is refused before there is a model to evaluate."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.reproduction.plans import check_generation


@pytest.mark.parametrize(
    "words, message",
    [
        (["--beam", "0"], "--beam 0: must be at least 1"),
        (["--beam=-1"], "--beam -1: must be at least 1"),
        (["--quiet"], "--generate --quiet: the output would not have the translations"),
    ],
)
def test_options_are_refused_before_there_is_a_model(words, message):
    with pytest.raises(ConfigurationError, match=message):
        check_generation("translation", words)


def test_options_that_fairseq_generate_takes_pass():
    words = "--arch transformer --dropout 0.1 --lenpen=2 --model-overrides {} --sampling"
    check_generation("translation", words.split())
    check_generation("summarization", ["--no-repeat-ngram-size", "3"])
