"""What a prepared folder says of itself, and what a folder of another kind says."""

import json

import pytest

from fairseq_plugins.data.prepared_folder import RECORD, Prepared, Record
from fairseq_plugins.errors import ConfigurationError


@pytest.mark.parametrize("content", ["", "[]", '{"settings": [1]}', '{"results": {}}', "{", "\xff"])
def test_a_record_that_says_nothing_gives_no_settings(tmp_path, content):
    assert Record.read(tmp_path).settings == {} and Prepared(tmp_path).task == "translation"
    (tmp_path / RECORD).write_bytes(content.encode("latin-1"))
    assert Record.read(tmp_path).settings == {}


@pytest.mark.parametrize("more", [{}, {"boundary": "<q>"}])
def test_a_record_that_lacks_a_setting_of_its_task_is_damaged(tmp_path, more):
    settings = {"source_lang": "de", "target_lang": "en", "tokenizer": "none", "lowercase": False}
    (tmp_path / RECORD).write_text(json.dumps({"settings": settings | more}))
    with pytest.raises(ConfigurationError, match=r"cannot be used \(it has no subword\): "):
        _ = Prepared(tmp_path).processing
