"""What a prepared folder says of itself, and what a folder of another kind says."""

import json
import re

import pytest

from fairseq_plugins.data.prepared_folder import RECORD, Prepared, Record, check_data
from fairseq_plugins.errors import ConfigurationError


@pytest.mark.parametrize("content", ["", "[]", '{"settings": [1]}', '{"results": {}}', "{", "\xff"])
def test_a_record_that_says_nothing_gives_no_settings(tmp_path, content):
    assert Record.read(tmp_path).settings == {} and Prepared(tmp_path).task == "translation"
    (tmp_path / RECORD).write_bytes(content.encode("latin-1"))
    assert Record.read(tmp_path).settings == {}


@pytest.mark.parametrize(
    "name, told",
    [
        ("file", "file is a file: give the prepared folder"),
        ("nowhere", "nowhere: no such folder; the prepare-"),
        ("stopped", "stopped: no such folder; its preparation was not finished: rerun it"),
        ("empty", "empty has no dictionaries (dict.*.txt); the prepare-"),
        ("damaged", "damaged: its preparation.json is damaged: restore it, or prepare the folder"),
    ],
)
def test_what_is_no_prepared_folder(tmp_path, name, told):
    (tmp_path / "file").touch()
    for folder in ("stopped.part", "empty", "damaged"):
        (tmp_path / folder).mkdir()
    (tmp_path / "damaged/dict.de.txt").touch()
    (tmp_path / "damaged" / RECORD).write_text("{")
    with pytest.raises(ConfigurationError, match=re.escape(f"--data {tmp_path / told}")):
        check_data(tmp_path / name, "--data")


@pytest.mark.parametrize("more", [{}, {"boundary": "<q>"}])
def test_a_record_that_lacks_a_setting_of_its_task_is_damaged(tmp_path, more):
    settings = {"source_lang": "de", "target_lang": "en", "tokenizer": "none", "lowercase": False}
    (tmp_path / RECORD).write_text(json.dumps({"settings": settings | more}))
    with pytest.raises(ConfigurationError, match=r"cannot be used \(it has no subword\): "):
        _ = Prepared(tmp_path).processing
