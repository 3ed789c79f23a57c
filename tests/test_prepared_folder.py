"""What a prepared folder says of itself, and what a folder of another kind says."""

import json

import pytest

from fairseq_plugins.prepared_folder import (
    RECORD,
    dictionaries,
    is_for_summarization,
    stored_settings,
)


@pytest.mark.parametrize("content", ["", "[]", '{"settings": [1]}', '{"results": {}}', "{", "\xff"])
def test_a_record_that_says_nothing_gives_no_settings(tmp_path, content):
    assert stored_settings(tmp_path) == {}
    (tmp_path / RECORD).write_bytes(content.encode("latin-1"))
    assert stored_settings(tmp_path) == {}


def test_settings_are_those_of_the_record(tmp_path):
    settings = {"source_lang": "source", "boundary": "<q>"}
    (tmp_path / RECORD).write_text(json.dumps({"settings": settings}))
    assert stored_settings(tmp_path) == stored_settings(str(tmp_path)) == settings
    assert is_for_summarization(settings)
    assert not is_for_summarization({"source_lang": "de"})


def test_dictionaries_of_languages_and_of_labels(tmp_path):
    names = ["dict.de.txt", "dict.en.txt", "input0/dict.txt", "label/dict.txt"]
    for name in [*names, "dict.txt", "other/dict.txt", "dict.de.bin"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert dictionaries(tmp_path) == [tmp_path / name for name in names]
