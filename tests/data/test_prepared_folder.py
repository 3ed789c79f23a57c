"""What a prepared folder says of itself, and what a folder of another kind says."""

import json

import pytest

from fairseq_plugins.data import prepared_folder
from fairseq_plugins.data.prepared_folder import RECORD, Prepared, Record, dictionaries
from fairseq_plugins.errors import ConfigurationError


@pytest.mark.parametrize("content", ["", "[]", '{"settings": [1]}', '{"results": {}}', "{", "\xff"])
def test_a_record_that_says_nothing_gives_no_settings(tmp_path, content):
    assert Record.read(tmp_path).settings == {} and Prepared(tmp_path).task == "translation"
    (tmp_path / RECORD).write_bytes(content.encode("latin-1"))
    assert Record.read(tmp_path).settings == {}


def test_settings_are_those_of_the_record(tmp_path):
    settings = {"source_lang": "source", "boundary": "<q>"}
    (tmp_path / RECORD).write_text(json.dumps({"settings": settings}))
    assert Record.read(tmp_path).settings == Record.read(str(tmp_path)).settings == settings
    assert Prepared(tmp_path).task == "summarization"
    (tmp_path / RECORD).write_text(json.dumps({"settings": {"task": "classification"}}))
    assert Prepared(tmp_path).task == "classification"


def test_a_folder_of_labels_is_not_for_text_with_two_sides(tmp_path):
    (tmp_path / RECORD).write_text(json.dumps({"settings": {"task": "classification"}}))
    with pytest.raises(ConfigurationError, match="it has no .*, as it is for classification"):
        _ = Prepared(tmp_path).processing


@pytest.mark.parametrize("more", [{}, {"boundary": "<q>"}])
def test_a_record_that_lacks_a_setting_of_its_task_is_damaged(tmp_path, more):
    settings = {"source_lang": "de", "target_lang": "en", "tokenizer": "none", "lowercase": False}
    (tmp_path / RECORD).write_text(json.dumps({"settings": settings | more}))
    with pytest.raises(ConfigurationError, match=r"cannot be used \(it has no subword\): "):
        _ = Prepared(tmp_path).processing


def test_what_is_handed_down_is_read_once(tmp_path, monkeypatch):
    settings = {"source_lang": "de", "target_lang": "en", "tokenizer": "none", "lowercase": False}
    record = {"settings": {**settings, "subword": "bpe", "normalization": "NFC"}}
    (tmp_path / RECORD).write_text(json.dumps(record))
    (tmp_path / "dict.de.txt").write_text("a 1\n")
    read = []
    for name in ("read_json", "digests_of_words"):
        original = getattr(prepared_folder, name)
        monkeypatch.setattr(
            prepared_folder, name, lambda path, read=read, f=original: read.append(path) or f(path)
        )
    prepared = Prepared(tmp_path)
    for each in (prepared, Prepared.of(prepared), prepared):
        assert each.languages == ("de", "en") and list(each.words) == ["dict.de.txt"]
        assert each.folder == tmp_path and each.settings == record["settings"]
    assert read == [tmp_path / RECORD, tmp_path]


def test_dictionaries_of_languages_and_of_labels(tmp_path):
    names = ["dict.de.txt", "dict.en.txt", "input0/dict.txt", "label/dict.txt"]
    for name in [*names, "dict.txt", "other/dict.txt", "dict.de.bin"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert dictionaries(tmp_path) == [tmp_path / name for name in names]
