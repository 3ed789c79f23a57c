"""Models of random options: they run, or are rejected in one line; a traceback is a fault.

For more of them: ``RANDOM_OPTIONS=1000 RANDOM_SEED=2 pytest -s`` with the path of this file.
"""

import argparse
import os
import random
import traceback
from typing import Any

import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS
from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS

HUGE = 10**20
INTEGERS = (-3, 0, 1, 2, 3, 4, 5, 8, 12, 16, 24, 30, 36, HUGE)
SHARES = (-0.5, 0.0, 0.1, 0.5, 1.0, 1.5, float("nan"))
WORDS = {
    "--encoder-blocks": ("1", "3", "2,1", "1,1,1", "3,3", "0", "2,-1", "x", "1,2,", str(HUGE)),
    "--encoder-token-mixer": (*TOKEN_MIXERS, "lstm"),
    "--encoder-ffn": (*FEED_FORWARDS, "big"),
    "--decoder-ffn": (*FEED_FORWARDS, "big"),
    "--fastformer-sharing": ("none", "layer", "head,layer", "query-value", "all", ""),
    "--encoder-layers-to-keep": ("0", "0,1", "0,1,2", "1,1", "9"),
    "--decoder-layers-to-keep": ("0", "0,1", "9"),
    "--adaptive-softmax-cutoff": ("4,10", "10", "10,4", "0,5", "4,1000"),
}
LEFT_OUT = (
    "--encoder-embed-path",  # files
    "--decoder-embed-path",
    "--encoder-xformers-att-config",  # a package that is not installed
    "--decoder-xformers-att-config",
    "--help",
)
BASE = (
    "--encoder-embed-dim 24 --encoder-ffn-embed-dim 36 --encoder-attention-heads 2"
    " --decoder-embed-dim 24 --decoder-ffn-embed-dim 36 --decoder-attention-heads 2"
    " --decoder-layers 2 --max-source-positions 64 --max-target-positions 64"
).split()
ARCHITECTURES = ("transformer_ftc", "fastformer_encoder", "mscffn_transformer")


def all_options() -> list[argparse.Action]:
    from fairseq.models import ARCH_MODEL_REGISTRY

    parser = argparse.ArgumentParser()
    ARCH_MODEL_REGISTRY[ARCHITECTURES[0]].add_args(parser)
    return [a for a in parser._actions if a.option_strings[-1] not in LEFT_OUT]


def draw(generator: random.Random, options: list[argparse.Action]) -> list[str]:
    """Words of a command line: a tiny model, and up to five of its options changed."""
    words = ["--arch", generator.choice(ARCHITECTURES), *BASE]
    for option in generator.sample(options, generator.randint(1, 5)):
        name = option.option_strings[-1]
        for choice, registry in (("token-mixer", TOKEN_MIXERS), ("ffn", FEED_FORWARDS)):
            # an option of a part matters where the part is chosen
            words += [f"--encoder-{choice}={p}" for p in registry if name.startswith(f"--{p}-")]
        if name.startswith("--copy-"):
            words += ["--copy-attention"]
        if option.nargs == 0:
            words += [name]
            continue
        if name in WORDS:
            values: tuple[Any, ...] = WORDS[name]
        elif option.choices:
            values = (*option.choices, "unknown")
        else:
            values = SHARES if option.type is float else INTEGERS
        words += [f"{name}={generator.choice(values)}"]
    return words


def step(model: Any) -> None:
    """Forward and backward in training, and forward in evaluation."""
    source, target = (min(4, longest) for longest in model.max_positions())
    words = {
        "src_tokens": torch.tensor([[4, 5, 6, 2], [1, 1, 7, 2]])[:, -source:],
        "src_lengths": torch.tensor([source, min(2, source)]),
        "prev_output_tokens": torch.tensor([[2, 4, 5, 6], [2, 7, 1, 1]])[:, :target],
    }
    model.train()(**words)[0].sum().backward()
    model.eval()(**words)


def outcome(parse: Any, words: list[str]) -> str:
    """What became of one command line: "ran", "rejected", or a traceback."""
    try:
        model = parse(*words).build_model()
        # a model reads its own state
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(state, strict=True)
        step(model)
        return "ran"
    except ConfigurationError as error:
        return "rejected" if "\n" not in str(error) else traceback.format_exc()
    except SystemExit:  # argparse has said what is wrong
        return "rejected"
    except Exception:
        return traceback.format_exc()


def test_random_options_run_or_are_rejected(parse_joined):
    seed, count = (int(os.environ.get(f"RANDOM_{n}", d)) for n, d in (("SEED", 1), ("OPTIONS", 60)))
    generator, options, found = random.Random(seed), all_options(), []
    for _ in range(count):
        words = draw(generator, options)
        torch.manual_seed(seed)
        found.append(outcome(parse_joined, words))
        assert found[-1] in ("ran", "rejected"), f"seed {seed}: {' '.join(words)}\n{found[-1]}"
    assert len(set(found)) == 2
