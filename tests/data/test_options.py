"""Each option of the preparations reaches the folder that they make."""

import json
import re

import pytest

from fairseq_plugins.cli import (
    prepare_classification,
    prepare_cnn_dm,
    prepare_iwslt14,
    prepare_summarization,
    prepare_translation,
)
from fairseq_plugins.data.prepared_folder import Record
from fairseq_plugins.files import digest
from tests.data.test_summarization import archive, write_pairs  # noqa: F401
from tests.labelled import write_texts

SUMMARIES = "--vocab-size 45 --sentencepiece-documents 20 --max-source 15 --lowercase --workers 1"
OF_SUMMARIES = {
    "vocab_size": 45, "sentencepiece_documents": 20, "max_source": 15, "lowercase": True,
}  # fmt: skip


def run(module, folder, words, capsys, elsewhere=""):
    """The settings of the folder; all options of -h must be given, but those `elsewhere`."""
    words = [str(word) for word in (folder, *words)]
    with pytest.raises(SystemExit):
        module.main(["-h"])
    options = set(re.findall(r"(?m)^  (?:-h, )?(--[a-z-]+)", capsys.readouterr().out))
    sharding = {"shards": 2} if "--shards" in options else {}
    words += ["--shards", "2"] if sharding else []
    given = {word.replace("--no-", "--") for word in words if word.startswith("--")}
    assert options - {"--help", *elsewhere.split()} == given
    assert module.main(words) == 0
    settings = Record.read(folder).settings
    assert {name: settings.pop(name) for name in sharding} == sharding
    return settings


@pytest.mark.parametrize("every", [None, 5])
def test_prepare_translation(every, tmp_path, capsys):
    for name, count in (("a", 9), ("b", 12), ("valid", 2), ("test", 2)):
        for language in ("de", "en"):
            (tmp_path / f"{name}.{language}").write_text(f"{name} Xx Yy {language}\n" * count)
    words = ["--source-lang", "de", "--target-lang", "en", "--train", tmp_path / "a"]
    words += [tmp_path / "b", "--test", tmp_path / "test", "--tokenizer", "moses", "--lowercase"]
    words += ["--max-words", 7, "--max-ratio", 3, "--subword", "sentencepiece", "--vocab-size", 20]
    words += ["--workers", 1, "--no-joined-dictionary"]
    words += ["--valid-every", every] if every else ["--valid", tmp_path / "valid"]
    elsewhere = "--like --fields --protect --protect-patterns --terms " + (
        "--valid" if every else "--valid-every"
    )
    settings = run(prepare_translation, tmp_path / "new", words, capsys, elsewhere)
    names = {"train": "ab"} | ({} if every else {"valid": ["valid"]}) | {"test": ["test"]}
    assert settings == {
        "source_lang": "de", "target_lang": "en", "tokenizer": "moses", "lowercase": True,
        "min_words": 1, "max_words": 7, "max_ratio": 3.0, "subword": "sentencepiece",
        "vocab_size": 20, "joined_dictionary": False, "normalization": "NFC", "valid_every": every,
        "fields": ["de", "en"], "inputs": {
            split: [[digest(tmp_path / f"{n}.{side}") for side in ("de", "en")] for n in of_split]
            for split, of_split in names.items()
        },
    }  # fmt: skip


def test_prepare_iwslt14(request, tmp_path, capsys):
    made = request.getfixturevalue("make_archive")(tmp_path / "de-en.tgz")
    words = ["--archive", made.path, "--expect-pairs", made.pairs, "--subword", "sentencepiece"]
    words += ["--vocab-size", 70, "--joined-dictionary", "--workers", 1]
    settings = run(prepare_iwslt14, tmp_path / "new", words, capsys)
    assert settings["archive"] == digest(made.path)
    assert (settings["subword"], settings["vocab_size"]) == ("sentencepiece", 70)
    assert settings["joined_dictionary"] is True


def test_prepare_cnn_dm(archive, tmp_path, capsys):  # noqa: F811
    stories, lists = archive
    words = ["--stories", stories, "--split-ids", *lists, "--expect", "28,5,4", *SUMMARIES.split()]
    settings = run(prepare_cnn_dm, tmp_path / "new", words, capsys)
    assert settings["inputs"] == {
        "stories": [digest(stories)],
        "split_ids": list(map(digest, lists)),
    }
    assert settings["expect"] == "28,5,4" and OF_SUMMARIES.items() <= settings.items()


def test_prepare_summarization(tmp_path, capsys):
    files = {split: tmp_path / f"{split}.txt" for split in ("train", "valid", "test")}
    sentences = " ".join(f"The {word} fell on it." for word in "rain snow hail wind".split())
    for path in files.values():
        path.write_text((json.dumps({"text": sentences}) + "\n") * 30)
    words = [word for split, path in files.items() for word in (f"--{split}", path)]
    words += ["--fields", "text", "none", "--pretrain", "gap", "--pretrain-sentences", 2]
    words += SUMMARIES.replace("45", "25").split()
    settings = run(prepare_summarization, tmp_path / "new", words, capsys, "--like")
    assert settings["fields"] == ["text", "none"] and settings["pretrain"] == ["gap", 2]
    assert {**OF_SUMMARIES, "vocab_size": 25}.items() <= settings.items()
    assert settings["inputs"] == {split: [[digest(path)]] for split, path in files.items()}


@pytest.mark.parametrize("units", ["subwords", "bytes", "words"])
def test_prepare_classification(units, tmp_path, capsys):
    files = write_texts(tmp_path)
    words = [word for split, path in files.items() for word in (f"--{split}", path)]
    words += ["--max-positions", 9, "--workers", 1, "--fields", "label", "text"]
    for path in files.values():
        path.write_text("label\ttext\n" + path.read_text())
    of_pieces = {"vocab_size": 36, "sentencepiece_documents": 40}
    elsewhere = "--imdb --valid-every "
    if units == "subwords":
        words += ["--vocab-size", 36, "--sentencepiece-documents", 40]
        elsewhere += "--bytes --words"
    else:
        words += [f"--{units}"]
        elsewhere += "--vocab-size --sentencepiece-documents --bytes --words".replace(
            f"--{units}", ""
        )
    settings = run(prepare_classification, tmp_path / "new", words, capsys, elsewhere)
    assert settings["units"] == units and settings["max_positions"] == 9
    assert units != "subwords" or of_pieces.items() <= settings.items()
    assert settings["inputs"] == {split: [[digest(path)]] for split, path in files.items()}
