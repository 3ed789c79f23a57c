"""The flags that a translation user commonly sets, through fairseq's own commands."""

import functools
import re

import pytest
import torch
from fairseq import scoring

from fairseq_plugins.models import EfficientTransformerModel
from tests.conftest import load, updates


@pytest.fixture(scope="module")
def words(toy_data, train_args):
    return [toy_data.bin, *train_args, "--arch", "transformer_ftc", "--encoder-blocks", "1,1"]


@pytest.fixture(scope="module")
def train(words, run_train):
    def run(save_dir, *more):
        return run_train(*words, "--save-dir", save_dir, *more).output

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory, train):
    """A folder with the checkpoints of two epochs, and what was printed."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(folder, "--max-epoch", 2)


@pytest.fixture(scope="module")
def generate(toy_data, trained, run_generate):
    @functools.cache
    def run(*more, path=None):
        path = path or trained[0] / "checkpoint_last.pt"
        return run_generate(
            toy_data.bin, "--path", path, "--max-len-b", 8, "--max-len-a", 0, *more
        ).output

    return run


def logged(output, kind, name):
    """The values of `name` in the lines of `kind`: train_inner, train or valid."""
    return [float(x) for x in re.findall(rf"{kind} \| .*?\b{name}[= ](-?[\d.]+)", output)]


def hypotheses(output, letter="H"):
    """{sentence: [(score, text), ...]} of the lines that begin with `letter`."""
    found = {}
    for sentence, score, text in re.findall(rf"^{letter}-(\d+)\t(\S+)\t(.*)$", output, re.M):
        found.setdefault(int(sentence), []).append((float(score), text))
    return found


# Training


def test_bf16_trains_resumes_and_generates(train, tmp_path, generate):
    exact = train(tmp_path / "exact", "--max-update", 3)
    output = train(tmp_path / "bf16", "--max-update", 3, "--bf16")
    losses = logged(output, "train_inner", "loss")
    assert losses == pytest.approx(logged(exact, "train_inner", "loss"), rel=0.02)
    assert losses != logged(exact, "train_inner", "loss")  # as it is not the same arithmetic
    resumed = train(tmp_path / "bf16", "--max-update", 5, "--bf16")
    assert (
        len(logged(resumed, "train_inner", "loss")) == 2 and updates(load(tmp_path / "bf16")) == 5
    )
    assert len(hypotheses(generate(path=tmp_path / "bf16" / "checkpoint_last.pt"))) == 13


def test_a_training_may_begin_with_some_of_the_layers_of_a_model(train, generate, tmp_path):
    """fairseq resumes and loads no such training: its checkpoints claim all layers."""
    whole, some = tmp_path / "whole", tmp_path / "some"
    words = "--encoder-blocks 3 --encoder-layers 3 --time-window 1 --feature-window 1".split()
    words += ["--decoder-layers", 2]
    train(whole, *words, "--max-update", 1)
    words += ["--encoder-layers-to-keep", "0,2", "--decoder-layers-to-keep", 1]
    words += ["--finetune-from-model", whole / "checkpoint_last.pt", "--lr", 1e-12]
    for updates_in_all in (1, 2):
        train(some, *words, "--max-update", updates_in_all)
        assert updates(load(some)) == updates_in_all
    old, new = load(whole)["model"], load(some)["model"]
    for name, before, after in (
        ("encoder.layers.{}.ffn.fc1", 2, 1),
        ("decoder.layers.{}.fc1", 1, 0),
    ):
        pair = old[name.format(before) + ".weight"], new[name.format(after) + ".weight"]
        torch.testing.assert_close(*pair, rtol=0, atol=1e-9)
    assert generate(path=some / "checkpoint_last.pt").count("H-") > 2


# Generation


def test_print_alignment(generate, toy_data):
    output = generate("--print-alignment")
    sources = (toy_data.raw / "test.src").read_text().splitlines()
    texts = hypotheses(output)
    alignments = re.findall(r"^A-(\d+)\t(.*)$", output, re.M)
    assert len(alignments) == 13
    for sentence, pairs in alignments:
        pairs = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        length = len(texts[int(sentence)][0][1].split())
        assert [target for _, target in pairs] == list(range(length))
        assert all(0 <= source <= len(sources[int(sentence)].split()) for source, _ in pairs)


def test_diverse_beams_are_the_same_alone_and_in_a_batch(generate):
    flags = ["--beam", 4, "--nbest", 4, "--diverse-beam-groups", 2]
    flags += ["--diverse-beam-strength", 0.5]
    together = hypotheses(generate(*flags))
    alone = hypotheses(generate(*flags, "--batch-size", 1))
    assert len(together) == 13
    for sentence in together:
        assert [t for _, t in together[sentence]] == [t for _, t in alone[sentence]]


@pytest.mark.parametrize("beam", [4, 6])
def test_diverse_beams_end_with_the_sentence(generate, beam):
    """No hypothesis goes on behind the end, which has a score and is not printed."""
    flags = ["--beam", beam, "--nbest", beam, "--diverse-beam-groups", 2, "--max-len-b", 12]
    output = generate(*flags)
    words = [len(text.split()) for each in hypotheses(output).values() for _, text in each]
    scores = [len(line.split()) for line in re.findall(r"^P-\d+\t(.*)$", output, re.M)]
    assert len(words) == 13 * beam and max(words) > 1
    assert scores == [count + 1 for count in words]


@pytest.fixture(scope="module")
def hub(toy_data, trained):
    return EfficientTransformerModel.from_pretrained(
        str(trained[0]), "checkpoint_last.pt", str(toy_data.bin)
    )


def test_a_constraint_that_allows_all_changes_nothing(hub, toy_data):
    """`prefix_allowed_tokens_fn` searches as without it, and ends where the sentence does."""
    sentences = (toy_data.raw / "test.src").read_text().splitlines()
    sources = [hub.encode(sentence) for sentence in sentences]
    every = list(range(len(hub.tgt_dict)))
    options = {"beam": 3, "nbest": 3, "max_len_b": 8}
    expected = hub.generate(sources, **options)
    found = hub.generate(sources, prefix_allowed_tokens_fn=lambda *_: every, **options)
    for ours, theirs in zip(found, expected):
        assert [h["tokens"].tolist() for h in ours] == [h["tokens"].tolist() for h in theirs]


@pytest.mark.parametrize("name", ["sacrebleu", "chrf"])
def test_unknown_words_match_nothing(name):
    scorer = scoring.build_scorer(name, None)
    scorer.add_string("<<unk>> <<unk>>", "<unk> <unk>")
    assert re.search(r"= 0\.0", scorer.result_string())
    scorer.add_string("a b c d", "a b c d")
    assert not re.search(r"= 0\.0", scorer.result_string())


def test_validate_equals_the_validation_of_the_training(toy_data, trained, run_validate):
    folder, training = trained
    output = run_validate(
        toy_data.bin, "--path", folder / "checkpoint_last.pt", "--max-tokens", 400
    ).output
    assert logged(output, "valid", "loss") == logged(training, "valid", "loss")[-1:]
