"""An exported model with random weights, and the torch model it is of."""

import json

import pytest

from fairseq_plugins.files import digest
from tests.export.conftest import export_joined, export_tiny, joined_task, task  # noqa: F401


def sign(folder):
    """Write the digests of all files into `config.json`."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["files"] = {each.name: digest(each) for each in folder.iterdir() if each != path}
    path.write_text(json.dumps(config), encoding="utf-8")


@pytest.fixture(scope="session")
def pair(tmp_path_factory, export_tiny):  # noqa: F811
    """The torch model and its `Export`."""
    folder = tmp_path_factory.mktemp("served") / "export"
    words = "--encoder-blocks 1,1 --time-window 2 --feature-window 2 --decoder-layers 2".split()
    model, exported = export_tiny(folder, *words)
    settings = {
        "source_lang": exported.source_lang,
        "target_lang": exported.target_lang,
        "tokenizer": "none",
        "lowercase": False,
        "subword": "bpe",
        "normalization": "NFC",
    }
    (folder / "preparation.json").write_text(json.dumps({"settings": settings}), encoding="utf-8")
    (folder / "bpe.codes").write_text("#version: 0.2\nq z\n", encoding="utf-8")
    sign(folder)
    return model, exported


@pytest.fixture
def exported(pair):
    return pair[1]
