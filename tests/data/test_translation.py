"""prepare-translation: any pair, any raw text."""

import shutil

import pytest

from fairseq_plugins.cli import prepare_translation
from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.data.prepared_folder import Prepared, Record
from fairseq_plugins.data.readers import Inputs, find_input
from fairseq_plugins.data.translation import fits_one_dictionary
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest, read_lines, write_lines
from fairseq_plugins.text.protection import SYMBOL
from tests.tiny_runs import binarised


def read(path):
    return list(read_lines(path))


@pytest.fixture
def run(corpus, tmp_path):
    main = prepare_translation.main

    def run(*words):
        argv = [str(tmp_path / "data"), "--source-lang", "fr", "--target-lang", "en"]
        main(argv + ["--workers", "1", "--vocab-size", "40"] + [str(word) for word in words])
        return tmp_path / "data"

    return run


def prepare_like(folder, destination, corpus, *words):
    argv = [destination, "--source-lang", "en", "--target-lang", "fr", "--workers", 1]
    argv += ["--train", corpus / "more", "--valid", corpus / "valid", "--like", folder, *words]
    prepare_translation.main([str(word) for word in argv])
    return destination


@pytest.mark.parametrize(
    "words",
    [["--joined-dictionary", "--lowercase", "--subword", "bpe"], ["--tokenizer", "none"], []],
    ids=str,
)
def test_new_text_in_the_subwords_of_another_folder(run, corpus, tmp_path, capsys, words):
    folder = run("--train", corpus / "train", "--valid", corpus / "valid", *words)
    for side in ("fr", "en"):  # some subwords are new
        write_lines(corpus / f"more.{side}", ["The Year 12 Ω", "an 3"])
    new = prepare_like(folder, tmp_path / "new", corpus)
    model = "bpe.codes" if words else "sentencepiece.model"
    for name in ("dict.fr.txt", "dict.en.txt", model):
        assert (new / name).read_bytes() == (folder / name).read_bytes()
    ours, theirs = Prepared(new).processing, Prepared(folder).processing
    assert ours == theirs._replace(source_lang="en", target_lang="fr")
    for name in ("bin", "idx"):
        ours, theirs = new / f"valid.en-fr.fr.{name}", folder / f"valid.fr-en.fr.{name}"
        assert ours.read_bytes() == theirs.read_bytes()
    report = (new / "report.txt").read_text(encoding="utf-8")
    assert "of another folder (--like)" in report and "Unknown tokens in train.en: " in report
    prepare_like(folder, new, corpus)  # kept
    (folder / "dict.fr.txt").write_text("other 1\n")
    with pytest.raises(ConfigurationError, match="was prepared with other settings"):
        prepare_like(folder, new, corpus)


def test_languages_of_one_script_get_one_dictionary(run, corpus, tmp_path):
    write_lines(corpus / "train.el", ["Το έτος OK 7", "αυτός, BBC"] * 20)
    for languages, expected in ((("fr", "en"), True), (("fr", "el"), False)):
        train = find_input("--train", corpus / "train", languages)
        found = fits_one_dictionary(tmp_path / "new", Inputs({"train": [train]}, languages))
        assert found == expected

    words = ["--train", corpus / "train", "--valid", corpus / "valid"]
    folder = run(*words, "--no-joined-dictionary")
    assert "need one: --joined-dictionary" in (folder / "report.txt").read_text(encoding="utf-8")
    dictionaries = [folder / f"dict.{language}.txt" for language in ("fr", "en")]
    run(*words)  # kept as it is
    assert dictionaries[0].read_bytes() != dictionaries[1].read_bytes()
    shutil.rmtree(folder)
    run(*words)
    assert dictionaries[0].read_bytes() == dictionaries[1].read_bytes()


def test_several_files_make_up_train(run, corpus, shared):
    folder = run(
        *("--train", corpus / "train", corpus / "more", "--valid", corpus / "valid"),
        *("--test", corpus / "test", "--subword", "bpe", "--workers", 2),
    )
    assert (2, "pairs read", "--workers") in shared
    for side in ("fr", "en"):
        raw = read(corpus / ("train." + side)) + read(corpus / ("more." + side))
        assert read(folder / "text" / "raw" / ("train." + side)) == raw
        for split in ("valid", "test"):
            name = f"{split}.{side}"
            assert read(folder / "text" / "raw" / name) == read(corpus / name)
    first = binarised(folder / "train.fr-en.fr")[0].replace("@@ ", "").split()
    assert first[:2] == ["L&apos;", "An"] and first[3:] == ["&amp;", "plus", "."]
    assert {path.name for path in folder.glob("*.idx")} == {
        f"{split}.fr-en.{side}.idx" for split in ("train", "valid", "test") for side in ("fr", "en")
    }


def test_valid_may_be_drawn_from_train_and_test_be_absent(run, corpus):
    folder = run("--train", corpus / "train", "--valid-every", 10, "--lowercase")
    raw = read(corpus / "train.en")
    assert read(folder / "text" / "raw" / "valid.en") == raw[9::10]
    first = binarised(folder / "valid.fr-en.en")[0]
    assert "the year" in first.replace(" ", "").replace("\u2581", " ")
    assert not (folder / "text" / "raw" / "test.en").exists()


def test_each_option_reaches_the_folder(run, corpus):
    words = ["--train", corpus / "train", corpus / "more", "--tokenizer", "moses", "--lowercase"]
    words += ["--max-words", 7, "--max-ratio", 3, "--subword", "sentencepiece", "--valid-every", 5]
    settings = Record.read(run(*words, "--no-joined-dictionary", "--shards", 2)).settings
    inputs = [[digest(corpus / f"{n}.{side}") for side in ("fr", "en")] for n in ("train", "more")]
    assert settings == {
        "source_lang": "fr", "target_lang": "en", "tokenizer": "moses", "lowercase": True,
        "min_words": 1, "max_words": 7, "max_ratio": 3.0, "subword": "sentencepiece",
        "vocab_size": 40, "joined_dictionary": False, "normalization": "NFC", "valid_every": 5,
        "shards": 2, "fields": ["fr", "en"], "inputs": {"train": inputs},
    }  # fmt: skip


def test_symbols_stand_for_terms_in_half_of_the_training_pairs(run, corpus, tmp_path):
    """In the same ones of both sides; the other half teaches the terms themselves."""
    (tmp_path / "terms.tsv").write_text("An\tYear\n")
    words = ("--train", corpus / "train", "--valid", corpus / "valid", "--protect")
    data = run(*words, "--terms", tmp_path / "terms.tsv", "--vocab-size", 60)
    found = {
        split: [
            [bool(SYMBOL.search(line)) for line in binarised(data / f"{split}.fr-en.{side}")]
            for side in ("fr", "en")
        ]
        for split in ("train", "valid")
    }
    assert found["train"][0] == found["train"][1] and 10 < sum(found["train"][0]) < 30
    assert not any(map(any, found["valid"]))


def test_the_report_counts_pairs_that_are_in_train_too(run, corpus):
    for side in ("fr", "en"):
        write_lines(corpus / f"test.{side}", ["Only here."] + read(corpus / f"train.{side}")[:3])
    folder = run(
        *("--train", corpus / "train", corpus / "train", "--valid-every", 3),
        "--test",
        corpus / "test",
    )
    report = (folder / "report.txt").read_text(encoding="utf-8")
    assert "One in 3 of the pairs is for validation" in report
    assert "Pairs that are in the training set, too: valid 26 of 26, test 3 of 4\n" in report


def test_a_side_that_nobody_sees_is_empty():
    assert Limits().reason_against("\u200b \ufeff", "b c") == "empty side"
    assert Limits().reason_against("b c", "\u200e \x01") == "empty side"
    assert Limits().reason_against("b\u200b c", "b \u200bc") is None


@pytest.mark.parametrize("french, english", [("fr_FR", "en_US"), ("fra_Latn", "eng_Latn")])
def test_long_codes_have_the_rules_of_the_short_ones(run, corpus, french, english):
    given = ["--train", corpus / "train", "--valid", corpus / "valid", "--subword", "bpe"]
    short = run(*given).rename(corpus / "short")
    for split in ("train", "valid"):
        for code, long, line in (("fr", french, "J'aime l'été."), ("en", english, "We don't.")):
            write_lines(corpus / f"{split}.{long}", [line, *read(corpus / f"{split}.{code}")])
    folder = run(*given, "--source-lang", french, "--target-lang", english)
    for code, long in (("fr", french), ("en", english)):
        tokenise = [Prepared(each).processing.tokenise for each in (folder, short)]
        raw = read(folder / "text/raw" / f"train.{long}")
        lines = list(map(tokenise[0](long), raw))
        assert lines[1:] == list(map(tokenise[1](code), read(short / f"text/raw/train.{code}")))
        assert lines[0] == ("J&apos; aime l&apos; été ." if code == "fr" else "We don &apos;t .")
        moses = Prepared(folder).processing.tokenise(long)
        assert [moses.undo(line) for line in lines] == read(folder / "text/raw" / f"train.{long}")


ZH, TH = "\u6211\u559c\u6b22\u82f9\u679c", "\u0e09\u0e31\u0e19\u0e0a\u0e2d\u0e1a\u0e01\u0e34"


@pytest.mark.parametrize(
    "text, english",
    [
        ("我喜欢苹果。", "I like apples."),
        (
            "我们今天去北京大学图书馆看书。",
            "We are going to read in the library of Peking University.",
        ),
        (
            "这个城市的公共交通系统需要更多的投资和更好的管理。",
            "This city's public transport system needs more investment and better management.",
        ),
        (
            "私は昨日友達と一緒に映画を見に行きました。",
            "I went to see a movie with my friends yesterday.",
        ),
        (TH + TH + TH[:4], "I like red apples very much"),
        (f"{ZH[:2]}, I like", "I like red apples very"),
    ],
)
def test_text_without_spaces_has_words(text, english):
    assert Limits().reason_against(text, english) is None
    assert Limits().reason_against(english, text) is None
    uneven = Limits().reason_against(text, english, tokenised_before=True)
    assert uneven == "one side more than 1.5 times as long"
    assert "more than 175 words" == Limits().reason_against(text * 60, "x " * 175)


def test_a_folder_that_cannot_be_renamed_is_refused_at_once(corpus, tmp_path, monkeypatch):
    (tmp_path / "volume").mkdir()
    words = ["--source-lang", "fr", "--target-lang", "en", "--train", str(corpus / "train")]
    words += ["--valid-every", "10", "--workers", "1", "--vocab-size", "40"]
    with monkeypatch.context() as patch:
        patch.setattr("os.path.ismount", lambda path: str(path) == str(tmp_path / "volume"))
        with pytest.raises(ConfigurationError, match="is a mount point.*give a folder in it"):
            prepare_translation.main([str(tmp_path / "volume"), *words])
    assert not (tmp_path / "volume.part").exists()
    (tmp_path / "link").symlink_to(tmp_path / "volume")
    prepare_translation.main([str(tmp_path / "link"), *words])
    assert (tmp_path / "volume" / "train.fr-en.en.idx").is_file()
    assert (tmp_path / "link").is_symlink()
