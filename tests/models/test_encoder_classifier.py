"""The classifier: its pooling against loops, its encoder unmoved by padding, its options."""

import argparse
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY
from omegaconf import OmegaConf

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.models.encoder_classifier import (
    MODEL_NAME,
    SENTENCE_POOLINGS,
    ClassificationHead,
    EncoderClassifierModel,
)
from tests.batches import (
    SIDES,
    assert_close,
    assert_same_function,
    leaves_of,
    make_sentences,
    pad,
    padding_mask,
    randomize,
)
from tests.labelled import TINY

LENGTHS = (4, 1, 9, 2, 7)
DIM, CLASSES = 15, 3


def pooled_rows(head, sentence):
    """The scores of one sentence."""
    scores = sentence.new_zeros(len(sentence))
    if head.score is not None:
        scores = head.score(torch.tanh(head.hidden(sentence))).squeeze(1)
    return head.out_proj(scores.softmax(dim=0) @ sentence)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("pooling", SENTENCE_POOLINGS)
def test_a_head_equals_its_equation_whatever_is_at_padding(pooling, side):
    head = randomize(ClassificationHead(DIM, CLASSES, pooling, dropout=0.3))
    sentences = make_sentences(LENGTHS, DIM)
    mask = padding_mask(LENGTHS, side)
    for garbage in (1e9, float("nan")):
        assert_same_function(
            lambda: list(head(pad(sentences, mask, garbage), mask)),  # noqa: B023
            lambda: [pooled_rows(head, sentence) for sentence in sentences],
            leaves_of(head, sentence=sentences),
        )


def parse(*words):
    """The options of a command line, the architecture applied."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, allow_abbrev=False)
    parser.add_argument("--arch")
    EncoderClassifierModel.add_args(parser)
    args = parser.parse_args([*TINY, *words])
    ARCH_CONFIG_REGISTRY[args.arch](args)
    return args


def task(max_positions=32, words=36):
    dictionary, labels = Dictionary(), Dictionary()
    for known, size in ((dictionary, words), (labels, CLASSES)):
        for number in range(size):
            known.add_symbol(str(number))
    cfg = SimpleNamespace(
        num_classes=CLASSES, init_token=None, shorten_method="truncate", data="data",
        classification_head_name="head",
    )  # fmt: skip
    return SimpleNamespace(
        source_dictionary=dictionary,
        label_dictionary=labels,
        max_positions=lambda: max_positions,
        cfg=cfg,
    )


def build(*words, seed=1, max_positions=32):
    torch.manual_seed(seed)
    model = EncoderClassifierModel.build_model(parse(*words), task(max_positions))
    model.register_classification_head("head", CLASSES)
    return randomize(model)


def scores(model, tokens):
    return model(tokens, None, features_only=True, classification_head_name="head")[0]


CHOICES = [
    "--encoder-ffn switch --encoder-token-mixer bigbird",
    "--encoder-blocks 1,1 --time-window 2 --feature-window 2",
    "--encoder-blocks 1,1 --time-window 3 --encoder-token-mixer fastformer --encoder-ffn mscffn",
    "--sentence-pooling mean --encoder-normalize-before",
]


@pytest.mark.parametrize("choice", CHOICES)
def test_neighbours_and_padding_change_no_scores(choice, make_tokens):
    model = build(*choice.split())
    for side in SIDES:
        tokens = make_tokens(LENGTHS, side)
        found = scores(model, tokens)
        assert found.shape == (len(LENGTHS), CLASSES)
        for row, length, text in zip(found, LENGTHS, tokens):
            alone = text[text != model.encoder.padding_idx].unsqueeze(0)
            assert alone.shape == (1, length)
            assert_close(scores(model, alone)[0], row, f"{choice}, length {length}", 1e-9)
    model.train()
    scores(model, tokens).sum().backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert not unused


PRESETS = sorted(ARCH_MODEL_INV_REGISTRY[MODEL_NAME])


@pytest.mark.parametrize("arch", PRESETS)
def test_presets_build_the_same_from_yaml(arch):
    args = parse("--arch", arch, "--sentence-pooling", "mean")
    model = EncoderClassifierModel.build_model(args, task())
    options = OmegaConf.create({"_name": arch, "max_positions": 32, "sentence_pooling": "mean"})
    for word, value in zip(TINY[2::2], TINY[3::2]):
        options[word[2:].replace("-", "_")] = float(value) if "." in value else int(value)
    options.dropout = 0.0
    OmegaConf.set_struct(options, True)
    with pytest.raises(ConfigurationError, match="model.decoder_layers is not an option"):
        EncoderClassifierModel.build_model(OmegaConf.create({"decoder_layers": 2}), task())
    OmegaConf.set_struct(options, False)
    ARCH_CONFIG_REGISTRY[arch](options)
    other = EncoderClassifierModel.build_model(options, task())
    shapes = [
        {name: tuple(p.shape) for name, p in one.named_parameters()} for one in (model, other)
    ]
    assert shapes[0] == shapes[1]
    assert all(options[name] == value for name, value in vars(args).items() if name != "arch")
