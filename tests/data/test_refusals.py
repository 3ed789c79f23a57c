"""Command lines that cannot work: each ends with one line that names the mistake."""

import shutil
import tarfile

import pytest

from fairseq_plugins.cli import main
from fairseq_plugins.errors import ConfigurationError
from tests.data.test_summarization import SIZES, write_pairs

PAIR = "prepare-translation new --workers 1 --vocab-size 40 --source-lang fr --target-lang en"
GIVEN = f"{PAIR} --train train --valid valid"
LIKE = (
    "prepare-translation new --source-lang fr --target-lang en --train train --valid valid --like"
)
DOCUMENTS = "prepare-summarization new --workers 1"
SOME = f"{DOCUMENTS} --train docs/train --valid docs/valid"
LABELS = "prepare-classification new --workers 1 --words"
STORIES = "prepare-cnn-dm new"

MISTAKES = [
    # options
    *(
        (f"{command} --workers {number}", f"--workers {number}: must be from 1 to 1024")
        for command in (GIVEN, SOME, LABELS, STORIES, "prepare-iwslt14 new")
        for number in (0, -1)
    ),
    (f"{GIVEN} --max-words 0", "--max-words 0: must be at least 1"),
    (f"{GIVEN} --max-ratio 0.5", "--max-ratio 0.5: must be at least 1"),
    (f"{GIVEN} --max-ratio nan", "--max-ratio nan: must be at least 1"),
    (f"{GIVEN} --max-ratio inf", "--max-ratio inf: must be finite"),
    (f"{GIVEN} --vocab-size -3", "--vocab-size -3: must be at least 1"),
    (f"{GIVEN} --target-lang fr", "--source-lang and --target-lang are both fr"),
    *(
        (f"{GIVEN} --target-lang {language}", f"--target-lang '{language}': files are named after")
        for language in ("../en", "zh-CN", "a.b", "a/b")
    ),
    (f"{PAIR} --train train --valid-every 1", "--valid-every 1: must be at least 2"),
    (f"{GIVEN} --fields de en", "--fields de en is for tables and JSON"),
    (f"{SOME} --max-source 1", "--max-source 1: must be at least 2"),
    (f"{SOME} --pretrain lead --pretrain-sentences 0", "--pretrain-sentences 0: must be from 1"),
    (f"{SOME} --pretrain-sentences 2", "--pretrain-sentences 2 needs --pretrain: add it"),
    (f"{SOME} --pretrain lead --fields text title", "--fields text title is for tables and JSON"),
    (LABELS, "give --train and --valid, or --imdb"),
    (f"{LABELS} --train x", "give --train and --valid, or --imdb"),
    (f"{LABELS} --train x --valid y --imdb z", "give --train and --valid, or --imdb"),
    (f"{LABELS} --train x --valid y --valid-every 3", "--valid-every 3 needs --imdb: add it"),
    (f"{LABELS} --imdb x --vocab-size 500", "--vocab-size 500 is for SentencePiece, but tokens"),
    (f"{LABELS} --imdb x --sentencepiece-documents 5", "--sentencepiece-documents 5 is for Sent"),
    (f"{LABELS} --imdb x --valid-every 1", "--valid-every 1: must be at least 2"),
    (f"{LABELS} --imdb x --max-positions 1", "--max-positions 1: must be at least 2"),
    (f"{LABELS} --imdb x --fields a b", "--fields a b needs --train: add it"),
    (f"{STORIES} --expect many", "--expect 'many': give three numbers"),
    *(
        (f"prepare-iwslt14 new --expect-pairs={given}", f"--expect-pairs '{given}': give three num")
        for given in ("1,2", "-1,2,3", "1_0,2,3", "1,2,x", "")
    ),
    # text
    (
        f"{PAIR} --train train --valid-every 41",
        "--valid-every 41 leaves valid empty, as there are only 40 pairs",
    ),
    (f"{PAIR} --train train --valid empty", "valid is empty, which fairseq cannot read"),
    (f"{PAIR} --train empty.csv --valid valid", "train is empty, which fairseq cannot read"),
    (f"{GIVEN} --test empty", "test is empty, which fairseq cannot read: give text, or no test"),
    (f"{GIVEN} --test absent", "absent.fr does not exist: --test absent is not a file"),
    (f"{PAIR} --train longer --valid valid", "longer.fr has 40 lines and longer.en has 41"),
    (f"{PAIR} --train latin1 --valid valid", "latin1.en, line 2: byte 0xef at column 3"),
    (f"{PAIR} --train blank --valid valid", "no pair of train can be used: 40 empty side; the"),
    (f"{PAIR} --train uneven --valid valid", "--max-ratio 1.5. Give more for short sentences"),
    (f"{PAIR} --train unspaced --valid valid --tokenizer none", "Text without spaces between"),
    (f"{GIVEN} --vocab-size 9", "--vocab-size 9 does not fit this text: give at least"),
    (f"{GIVEN} --vocab-size 1", "--vocab-size 1 does not fit this text: give another number"),
    (f"{SOME} --vocab-size 9", "--vocab-size 9 does not fit this text"),
    (f"{DOCUMENTS} --train docs/longer --valid docs/valid", "longer.source has 31 lines and docs"),
    (f"{DOCUMENTS} --train docs/x --valid docs/valid", "docs/x.source does not exist"),
    (f"{DOCUMENTS} --train fields --valid fields", "no field 'highlights': choose two with --fi"),
    (f"{DOCUMENTS} --train broken --valid broken", "no document of train can be used: 1 no JSON"),
    (f"{LABELS} --train one --valid one", "all training texts have the label a"),
    (f"{LABELS} --train two --valid other", "valid has 1 label that train does not have, such"),
    (f"{LABELS} --train two --valid no_tab", "no text of valid can be used: 1 no tab between"),
    (f"{LABELS} --train two --valid empty.fr", "valid is empty, which fairseq cannot read"),
    (f"{LABELS} --imdb nowhere", "nowhere cannot be read"),
    (f"{LABELS} --imdb none.tar", "--imdb none.tar holds no reviews"),
    (f"{LABELS} --imdb train.fr", "train.fr is damaged or not a tar archive"),
    (f"{STORIES} --stories none.tar --split-ids ids ids2 ids3", "none.tar holds no file named *."),
    (f"{STORIES} --stories train.fr --split-ids ids ids2 ids3", "train.fr is damaged or not a"),
    ("prepare-iwslt14 new --archive absent", "absent does not exist or is not a file: give a comp"),
    # folders
    *(
        (GIVEN.replace("new", name, 1), message)
        for name, message in (
            ("..", "was not made by this command"),
            ("ids", "was not made by this command"),
            ("ids/data", "data.part cannot be written: Not a directory"),
            ("a,b", "fairseq cannot read paths with ','"),
            ("a:b", "fairseq cannot read paths with"),
            ("c,d/a", "fairseq cannot read paths with ','"),
        )
    ),
    (f"{LIKE} pair --no-joined-dictionary", "--no-joined-dictionary: --like pair was prepared w"),
    (f"{LIKE} pair --vocab-size 30", "--vocab-size 30: --like pair has 40: remove it"),
    (f"{LIKE} pair --lowercase", "--lowercase: --like pair was prepared without it: remove it"),
    (f"{LIKE} pair --subword sentencepiece", "--subword sentencepiece: --like pair has bpe"),
    (f"{LIKE} pair --target-lang de", "--like pair was prepared for fr and en: give a folder of"),
    (f"{LIKE} .", "preparation.json cannot be used"),
    (f"{LIKE} lacking", "--like lacking has no bpe.codes: give a folder with it"),
    (f"{SOME} --pretrain lead --like nowhere", "nowhere/preparation.json cannot be used"),
    (f"{SOME} --lowercase --like docs/data", "--lowercase: --like docs/data was prepared without"),
    (f"{SOME} --vocab-size 32000 --like docs/data", "--vocab-size 32000: --like docs/data has 48"),
    (f"{SOME} --sentencepiece-documents 9 --like docs/data", "--sentencepiece-documents 9: --like"),
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Text of all kinds, and folders prepared of it."""
    folder = tmp_path_factory.mktemp("inputs")
    french, english = ([f"{text} {n}." for n in range(40)] for text in ("L'an", "The year"))
    sides = {
        "train": (french, english), "valid": (french[:5], english[:5]), "empty": ([], []),
        "longer": (french, [*english, "one more"]), "latin1": (["", ""], ["ok", "na\xefve"]),
        "unspaced": (["\u6211\u559c\u6b22\u5403"] * 40, ["I like to eat"] * 40),
        "blank": ([""] * 40, english), "uneven": (["a b c d e f"] * 40, ["a b"] * 40),
    }  # fmt: skip
    for name, pair in sides.items():
        for side, lines in zip(("fr", "en"), pair):
            encoding = "latin-1" if name == "latin1" else "utf-8"
            (folder / f"{name}.{side}").write_text("".join(f"{x}\n" for x in lines), encoding)
    for name, text in (
        ("fields", '{"article": "a", "summary": "b"}\n'), ("broken", "{broken\n"),
        ("one", "a\tx\na\ty\n"), ("two", "a\tx\nb\ty\n"), ("other", "c\tx\n"), ("no_tab", "c x\n"),
        ("empty.csv", ""),
    ):  # fmt: skip
        (folder / name).write_text(text)
    for name in ("ids", "ids2", "ids3"):
        (folder / name).write_text(f"story-{name}\n")
    with tarfile.open(folder / "none.tar", "w") as archive:
        archive.add(folder / "ids", "ids")
    (folder / "docs").mkdir()
    write_pairs(folder / "docs", {**SIZES, "longer": range(30)})
    with open(folder / "docs/longer.source", "a") as file:
        file.write("one more\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(f"{GIVEN} --subword bpe".replace("new", "pair").split()) == 0
        assert main(f"{SOME} --vocab-size 48".replace("new", "docs/data").split()) == 0
    shutil.copytree(folder / "pair", folder / "lacking")
    (folder / "lacking/bpe.codes").unlink()
    return folder


@pytest.mark.parametrize("words, message", MISTAKES, ids=str)
def test_a_mistake_is_named_in_one_line(inputs, monkeypatch, words, message):
    monkeypatch.chdir(inputs)
    before = [sorted(folder.iterdir()) for folder in (inputs, inputs.parent)]
    with pytest.raises(ConfigurationError) as error:
        main(words.split())
    assert message in str(error.value) and "\n" not in str(error.value)
    shutil.rmtree("new.part", ignore_errors=True)  # of mistakes found while text is read
    assert [sorted(folder.iterdir()) for folder in (inputs, inputs.parent)] == before
