"""Pairs for pretraining: what becomes the summary, and pieces that two folders share."""

import shutil

import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer

from fairseq_plugins.cli import prepare_summarization
from fairseq_plugins.data.pretraining import GAP, Pretraining, importance
from fairseq_plugins.data.readers import Item
from fairseq_plugins.data.summarization import parse_alone
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.train.first_data import prepare_pretraining
from tests.conftest import load
from tests.data.test_summarization import SIZES, SMALL, article, write_pairs

TEXT = "Rain fell. The rain stopped in the city. Nobody came. In the city the rain fell."


def test_gap():
    document, summary = Pretraining("gap", 2).pair(TEXT)
    assert summary == ["The rain stopped in the city.", "In the city the rain fell."]
    assert document == f"Rain fell. {GAP} Nobody came. {GAP}"
    assert Pretraining("gap", 4).pair(TEXT) == ("", [])


def test_text_without_spaces_stays_so_and_has_words():
    sentences = ["没人来。", "雨落在城里。", "城里的雨停了！", "太阳出来了。"]
    assert Pretraining("lead", 1).pair("".join(sentences)) == (
        "".join(sentences[1:]),
        sentences[:1],
    )
    document, summary = Pretraining("gap", 2).pair("".join(sentences))
    assert summary == sentences[1:3] and document == f"没人来。{GAP}{GAP}太阳出来了。"


def test_marks_belong_to_their_words():
    assert importance(["हिन्दी", "हिमालय"]) == [0, 0]  # not the common ह


def test_the_boundary_in_a_document_is_text():
    item = Item("train", "", ("Press <q>. It <q> fell.",))
    document = parse_alone(Pretraining("lead", 1), ["source"], item)
    assert (document.source, document.target) == ("It <q> fell.", "Press < q >.")


def test_importance_is_rouge():
    sentences = [line + "." for line in TEXT.lower().strip(".").split(". ")]
    for n, found in enumerate(importance(sentences)):
        rest = " ".join(sentences[:n] + sentences[n + 1 :])
        scores = RougeScorer(["rouge1"]).score(rest, sentences[n])
        assert found == pytest.approx(scores["rouge1"].fmeasure)


def run(*words):
    prepare_summarization.main([str(word) for word in words])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Pairs, and documents without summaries prepared with the same pieces."""
    folder = tmp_path_factory.mktemp("pretraining")
    write_pairs(folder, SIZES)
    for split in SIZES:
        (folder / f"alone_{split}.source").write_text(
            "".join(f"{article(n)} {TEXT}\n" for n in range(9)) + "One.\n\n"
        )
    splits = [("--" + split, folder / split) for split in SIZES]
    run(folder / "data", *[word for pair in splits for word in pair], *SMALL)
    splits = [("--" + split, folder / f"alone_{split}") for split in SIZES]
    words = [word for pair in splits for word in pair]
    run(folder / "pretrain", *words, "--pretrain", "lead", "--like", folder / "data", *SMALL)
    return folder


def test_documents_alone_become_pairs(folders):
    raw = folders / "pretrain/text/raw"
    sides = ((raw / f"train.{side}").read_text().splitlines() for side in ("source", "target"))
    for n, (source, target) in enumerate(zip(*sides)):
        summary = target.split(" <q> ")
        assert len(summary) == 3 and summary[0].startswith(f"Story {n} said.")
        assert " ".join([*summary, source]) == f"{article(n)} {TEXT}"
    assert n == 8
    removed = (folders / "pretrain/removed.txt").read_text().splitlines()
    assert removed[:2] == [
        "train\talone_train:10\ttoo few sentences",
        "train\talone_train:11\tempty",
    ]


def test_both_folders_have_the_same_pieces(folders):
    for name in ("sentencepiece.model", "dict.source.txt", "dict.target.txt"):
        one, other = ((folders / folder / name).read_bytes() for folder in ("data", "pretrain"))
        assert one == other, name


def test_a_prepared_folder_gives_its_own_pretraining(folders, tmp_path):
    """Its documents without their summaries, in its pieces, as if prepared by the command."""
    for split in SIZES:
        sides = (f"{article(n)} {TEXT}\n" for n in range(9)), ["It rained. <q> Not now.\n"] * 9
        for side, lines in zip(("source", "target"), sides):
            (tmp_path / f"{split}.{side}").write_text("".join(lines))
    splits = [word for split in ("train", "valid") for word in (f"--{split}", tmp_path / split)]
    run(tmp_path / "data", *splits, "--like", folders / "data", *SMALL)
    prepare_pretraining(tmp_path / "data", tmp_path / "own", "gap")
    like = ["--like", tmp_path / "data", "--pretrain", "gap", "--pretrain-sentences", 2]
    run(tmp_path / "other", *splits, *like, *SMALL)
    names = [f.name for f in (tmp_path / "other").iterdir() if f.suffix in (".bin", ".idx")]
    assert len(names) == 8
    for name in [*names, "dict.source.txt", "sentencepiece.model", "text/raw/train.target"]:
        assert (tmp_path / "own" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    prepare_pretraining(tmp_path / "data", tmp_path / "own", "gap")  # finished: left as it is
    with pytest.raises(ConfigurationError, match=r"^DATA .* lacks sentencepiece.model: rerun"):
        prepare_pretraining(tmp_path, tmp_path / "more", "lead")
    shutil.rmtree(str(tmp_path / "data" / "text"))
    with pytest.raises(ConfigurationError, match=r"^DATA .* lacks text/raw/train.source: rerun"):
        prepare_pretraining(tmp_path / "data", tmp_path / "more", "lead")


def test_a_model_goes_on_with_the_other_folder(folders, run_train, train_args, tmp_path):
    """It begins with the parameters that pretraining ended with."""
    words = [*train_args, "--arch", "fastformer_encoder"]
    words += ["--task", "summarization", "--copy-attention", "--max-update", 1, "--lr", 0.01]
    run_train(folders / "pretrain", *words, "--save-dir", tmp_path / "pretrained")
    path = tmp_path / "pretrained/checkpoint_last.pt"
    more = ["--finetune-from-model", path, "--save-dir", tmp_path / "model", "--lr", 0.0]
    run_train(folders / "data", *words, *more)
    one, other = (load(tmp_path / name)["model"] for name in ("pretrained", "model"))
    assert one["decoder.copying.gate.weight"].any()
    assert all(torch.equal(one[name], other[name]) for name in one if "_float_" not in name)
