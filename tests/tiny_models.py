"""Fixtures: tiny models built as fairseq's command line builds them, and batches for them."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch

from tests.batches import padding_mask, randomize
from tests.conftest import SIZES, USER_DIR, ToyData

# sizes that are no powers of two, and that halve, third and quarter with room for the heads
TINY = (
    "--encoder-embed-dim 24 --encoder-ffn-embed-dim 36 --encoder-attention-heads 2"
    " --decoder-embed-dim 24 --decoder-ffn-embed-dim 36 --decoder-attention-heads 2"
    " --decoder-layers 1 --mscffn-subspaces 6 --mscffn-expansion 2 --dropout 0"
    " --max-source-positions 64 --max-target-positions 64"
).split()


class Setup(NamedTuple):
    """What the command line leads to."""

    args: Any
    task: Any

    def build_model(self, seed: int = 1) -> Any:
        """As fairseq-train does, which gives models of the legacy kind the parser's Namespace."""
        torch.manual_seed(seed)
        return self.task.build_model(self.args)


@pytest.fixture(scope="session")
def parse(toy_data):
    """parse(words...) -> Setup: fairseq's own parser and its translation task."""
    return parser_of(toy_data)


@pytest.fixture(scope="session")
def joined_data(tmp_path_factory, make_toy_data):
    """As toy_data, with one dictionary for both sides."""
    return make_toy_data(tmp_path_factory.mktemp("joined"), SIZES, joined=True)


@pytest.fixture(scope="session")
def parse_joined(joined_data):
    """As `parse`, over `joined_data`."""
    return parser_of(joined_data)


def parser_of(data: ToyData) -> Callable[..., Setup]:
    from fairseq import options, tasks

    command = [str(data.bin), "--user-dir", str(USER_DIR)]

    def run(*words: Any) -> Setup:
        # the parser looks for --user-dir in sys.argv
        with mock.patch.object(sys, "argv", ["fairseq-train"] + command):
            parser = options.get_training_parser()
            args = options.parse_args_and_arch(parser, command + [str(word) for word in words])
        return Setup(args, tasks.setup_task(args))

    return run


@pytest.fixture(scope="session")
def build(parse):
    """build(words..., arch="transformer_ftc") -> a tiny model with random parameters, in float64.

    Later words win over the tiny sizes. `plain=True` leaves parameters and type as they are built.
    """
    return builder_of(parse)


@pytest.fixture(scope="session")
def build_joined(parse_joined):
    """As `build`, over one dictionary for both sides."""
    return builder_of(parse_joined)


def builder_of(parse: Callable[..., Setup]) -> Callable[..., Any]:
    def run(*words: Any, arch: str = "transformer_ftc", plain: bool = False, seed: int = 1):
        sizes = TINY if arch != "transformer" else drop_mscffn(TINY)
        model = parse("--arch", arch, *sizes, *words).build_model(seed)
        if plain:
            return model
        randomize(model, seed)
        with torch.no_grad():  # as fairseq has it, and keeps it in training
            model.encoder.embed_tokens.weight[model.encoder.padding_idx].zero_()
            model.decoder.embed_tokens.weight[model.decoder.padding_idx].zero_()
        return model

    return run


@pytest.fixture
def uninitialised(monkeypatch):
    """Parameters of new models hold what was in memory: those of full size are there at once."""
    for name in ("kaiming_uniform_", "normal_", "uniform_", "xavier_uniform_"):
        monkeypatch.setattr(torch.nn.init, name, lambda tensor, *args, **kwargs: tensor)


@pytest.fixture(scope="session")
def tiny_words() -> list[str]:
    return list(TINY)


def drop_mscffn(words: list[str]) -> list[str]:
    """Without the options that fairseq's own `transformer` does not know."""
    kept = list(words)
    for option in ("--mscffn-subspaces", "--mscffn-expansion"):
        at = kept.index(option)
        del kept[at : at + 2]
    return kept


@pytest.fixture(scope="session")
def make_tokens():
    """make_tokens(lengths, side, width=None) -> `B x T`, padded and ended as fairseq does."""

    def run(lengths, side="left", width=None, seed=0):
        generator = torch.Generator().manual_seed(seed)
        mask = padding_mask(lengths, side, width)
        tokens = torch.full(mask.shape, 1)
        for row, mask_row, length in zip(tokens, mask, lengths):
            sentence = torch.randint(4, 40, (length,), generator=generator)
            sentence[-1:] = 2
            row[~mask_row] = sentence
        return tokens

    return run


@pytest.fixture(scope="session")
def make_sample(make_tokens):
    """make_sample(lengths, target_lengths, side) -> a sample as fairseq's criterions take it."""

    def run(lengths, target_lengths=None, side="left", seed=0):
        target_lengths = lengths[::-1] if target_lengths is None else target_lengths
        target = make_tokens(target_lengths, "right", seed=seed + 1)
        previous = target.clone()
        for row, length in zip(previous, target_lengths):
            row[1:length] = row[: length - 1].clone()
            row[0] = 2
        tokens = make_tokens(lengths, side, seed=seed)
        return {
            "id": torch.arange(len(lengths)),
            "nsentences": len(lengths),
            "ntokens": sum(target_lengths),
            "net_input": {
                "src_tokens": tokens,
                "src_lengths": torch.tensor(lengths),
                "prev_output_tokens": previous,
            },
            "target": target,
        }

    return run
