"""JSON files: whole or not there."""

import os

import pytest

from fairseq_plugins import json_files


def test_json_is_written_atomically(tmp_path):
    path = tmp_path / "a.json"
    assert json_files.read_json(path) is None
    json_files.write_json(path, {"a": 1})
    assert json_files.read_json(path) == {"a": 1} and path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(TypeError):
        json_files.write_json(path, {"a": object()})
    assert json_files.read_json(path) == {"a": 1}
    path_of_data = os.fsdecode(b"d\xfcta")  # not UTF-8
    json_files.write_json(path, {"data": path_of_data})
    assert json_files.read_json(path) == {"data": path_of_data}
    path.write_text("{")
    assert json_files.read_json(path) is None
