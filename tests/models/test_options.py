"""Every option and preset arrives, by command line and by YAML; mistakes get one clear line."""

import ast
import json
import sys

import pytest
import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from omegaconf import OmegaConf

from fairseq_plugins.models.options import plugin_options
from tests.conftest import USER_DIR
from tests.models.test_presets import RECORD
from tests.tiny_models import TINY

# Words that make the option matter, then the option, and values that are not its default.
OPTIONS = """
--encoder-blocks 1,2 | 2,2,1
--time-window 4 | 1
--feature-window 4 | 1
--time-pooling max | min
--feature-pooling linear | max | min
--encoder-token-mixer fastformer
--encoder-ffn mscffn | low_dimensional
--decoder-ffn mscffn
--encoder-token-mixer fastformer --fastformer-interaction add | concat
--encoder-token-mixer fastformer --fastformer-sharing none | query-value | layer | head,layer
--encoder-ffn mscffn --decoder-ffn mscffn --mscffn-subspaces 2
--encoder-ffn mscffn --decoder-ffn mscffn --mscffn-expansion 3
--encoder-ffn switch --decoder-ffn switch --switch-experts 3
--encoder-ffn switch --decoder-ffn switch --switch-capacity-factor 0.5
--encoder-token-mixer performer --performer-features 8
--encoder-token-mixer linformer --linformer-projected-length 3
--encoder-token-mixer linformer --linformer-sharing none | key-value
--encoder-token-mixer longformer --longformer-window 4 --longformer-window 2
--encoder-token-mixer longformer --longformer-window 4 --longformer-global-tokens 2
BIGBIRD --bigbird-block 2
BIGBIRD --bigbird-window-blocks 3
BIGBIRD --bigbird-global-blocks 1
BIGBIRD --bigbird-random-blocks 3
POOLINGFORMER --poolingformer-window 2
POOLINGFORMER --poolingformer-pooling-window 2
POOLINGFORMER --poolingformer-kernel 3
POOLINGFORMER --poolingformer-stride 2
--dropout 0.2 --training-path plain
--encoder-embed-dim 48
--encoder-ffn-embed-dim 40
--encoder-attention-heads 3
--decoder-layers 3
--decoder-ffn-embed-dim 50
--decoder-attention-heads 4
--dropout 0.5
--attention-dropout 0.5
--activation-dropout 0.5
--encoder-ffn mscffn --decoder-ffn mscffn --activation-dropout 0.5
--encoder-token-mixer fastformer --attention-dropout 0.5
--activation-fn gelu
--encoder-layerdrop 0.9
--decoder-layerdrop 0.9
--max-source-positions 30
--encoder-normalize-before yes
--decoder-normalize-before yes
--encoder-learned-pos yes
--no-token-positional-embeddings yes
--no-scale-embedding yes
--layernorm-embedding yes
--share-decoder-input-output-embed yes
--no-cross-attention yes
"""
SHORT = {
    "BIGBIRD": "--encoder-token-mixer bigbird --bigbird-global-blocks 0 --bigbird-window-blocks 1"
    " --bigbird-random-blocks 1 --bigbird-block 1",
    "POOLINGFORMER": "--encoder-token-mixer poolingformer --poolingformer-pooling-window 6",
}


def options_and_values():
    """Words that make an option matter, the option, and its value; "yes" is a flag's."""
    for line in OPTIONS.strip().splitlines():
        first, *values = line.split(" | ")
        *base, option, value = " ".join(SHORT.get(word, word) for word in first.split()).split()
        yield from ((base, option, each) for each in (value, *values))


PRESETS = sorted(RECORD["presets"])
BOTH_SIDES = (
    "--dropout --attention-dropout --activation-dropout --activation-fn --layernorm-embedding"
    " --no-token-positional-embeddings"
).split()


def yaml_of(words):
    """`--an-option 3` as `an_option: 3`, with YAML's types."""
    options = {}
    following = list(words[1:]) + ["--"]
    for word, value in zip(words, following):
        if str(word).startswith("--"):
            if str(value).startswith("--"):
                value = True
            try:
                value = ast.literal_eval(str(value))
            except (ValueError, SyntaxError):
                pass
            if isinstance(value, tuple):
                value = ",".join(str(part) for part in value)
            options[word[2:].replace("-", "_")] = value
    return options


def from_words(parse, words, seed=1):
    return parse(*words).build_model(seed)


def from_yaml(parse, words, seed=1):
    """As fairseq-hydra-train builds a model: from the model node of its configuration."""
    options = yaml_of(words)
    options["_name"] = options.pop("arch")
    task = parse("--arch", "transformer").task
    config = OmegaConf.create({"model": options})
    OmegaConf.set_struct(config, True)
    torch.manual_seed(seed)
    return task.build_model(config.model)


def fingerprint(model, sample):
    """Sizes of all parameters, the limits, and what encoder and decoder compute in training."""
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    net_input = sample["net_input"]
    model.train()
    with torch.no_grad():
        torch.manual_seed(3)
        encoded = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
        # of the same numbers, whatever the encoder does
        given = dict(encoded, encoder_out=[torch.ones_like(encoded["encoder_out"][0])])
        torch.manual_seed(3)
        logits, _ = model.decoder(net_input["prev_output_tokens"], given)
    return {
        "sizes": (shapes, model.max_positions()),
        "encoder": [round(x, 5) for x in encoded["encoder_out"][0].flatten().tolist()],
        "decoder": [round(x, 5) for x in logits.flatten().tolist()],
    }


@pytest.fixture(scope="module")
def base_fingerprints(parse, make_sample):
    cache = {}

    def get(words):
        key = tuple(words)
        if key not in cache:
            model = from_words(parse, ["--arch", "transformer_ftc", *TINY, *words])
            cache[key] = fingerprint(model, make_sample((5, 1, 9)))
        return cache[key]

    return get


@pytest.mark.parametrize("base, option, value", options_and_values())
def test_every_option_arrives_both_ways(parse, make_sample, base_fingerprints, base, option, value):
    words = ["--arch", "transformer_ftc", *TINY, *base, option]
    words += [value] if value != "yes" else []
    sample = make_sample((5, 1, 9))
    found = [fingerprint(make(parse, words), sample) for make in (from_words, from_yaml)]
    assert found[0] == found[1], "the command line and YAML differ"
    default = base_fingerprints(base)
    assert found[0] != default, "the option changes nothing"
    if option in BOTH_SIDES:
        assert found[0]["encoder"] != default["encoder"], "the encoder does not know"
        assert found[0]["decoder"] != default["decoder"], "the decoder does not know"


def test_every_option_of_the_plugin_is_tried_here():
    options = {f"--{name}".replace("_", "-") for name, _ in plugin_options()}
    # the first changes no number of a first forward; others are tested in graphs/, test_copying.py
    # and test_warm_start.py
    others = "--switch-balance --cuda-graphs --copy-attention --copy-next".split()
    others += "--init-from --init-only --init-skip --init-data --freeze".split()
    assert options - {option for _, option, _ in options_and_values()} <= set(others)


@pytest.mark.parametrize("make", [from_words, from_yaml])
@pytest.mark.parametrize("words, idle", [
    ("--longformer-window 7", ["--longformer-window"]),
    ("--switch-experts 1", ["--switch-experts"]),
    ("--tie-adaptive-weights", ["--tie-adaptive-weights"]),
    ("--time-pooling max --feature-pooling linear --feature-window 1", ["--feature-pooling"]),
    (
        "--encoder-token-mixer linformer --linformer-projected-length 9 --decoder-ffn mscffn"
        " --performer-features 5 --fastformer-interaction add",
        ["--fastformer-interaction", "--performer-features"],
    ),
])  # fmt: skip
def test_each_option_of_what_no_layer_has_is_one_warning(parse, caplog, words, idle, make):
    """Whatever its value."""
    make(parse, ["--arch", "transformer_ftc", *TINY, *words.split()])
    told = [r.getMessage().split()[0] for r in caplog.records if "no effect" in r.getMessage()]
    others = [] if "mscffn" in words else ["--mscffn-expansion", "--mscffn-subspaces"]
    assert sorted(told) == sorted([*idle, *others])


@pytest.mark.parametrize(
    "arch, make", [*((arch, from_words) for arch in PRESETS), (PRESETS[-1], from_yaml)]
)
def test_the_user_wins_over_the_preset(parse, arch, make):
    words = "--encoder-blocks 1,2 --time-window 1 --feature-window 3 --encoder-embed-dim 24"
    words += " --encoder-ffn-embed-dim 36 --encoder-attention-heads 2 --decoder-embed-dim 24"
    words += " --decoder-ffn-embed-dim 36 --decoder-attention-heads 2 --decoder-layers 1"
    words += " --encoder-token-mixer softmax --encoder-ffn standard --decoder-ffn standard"
    model = make(parse, ["--arch", arch, *words.split()])
    reference = from_words(parse, ["--arch", "transformer_ftc", *words.split()])
    assert [(n, p.shape) for n, p in model.named_parameters()] == [
        (n, p.shape) for n, p in reference.named_parameters()
    ]
    assert [layer.starts_later_block for layer in model.encoder.layers] == [False, True, False]


# The message names the last option and its value, and what is after the arrow.
MISTAKES = """
--encoder-blocks 3,x -> 3,x
--encoder-blocks 3,0 -> 3,0 1
--encoder-blocks 3,3 --encoder-layers 5 -> --encoder-blocks 3,3
--encoder-blocks 4 -> 2,2
--encoder-ffn switch --checkpoint-activations -> switch
--training-path plain --decoder-ffn switch -> --training-path fast
--encoder-token-mixer bigbird --bigbird-window-blocks 2 -> odd
--encoder-token-mixer longformer --longformer-window 7 -> even
--encoder-token-mixer poolingformer --poolingformer-kernel 4 -> odd
--encoder-ffn switch --switch-balance nan -> must be
--time-window 0 -> 1
--feature-window 5 -> 24 4
--feature-window 24 -> 12
--feature-window 100000000000000000000 -> 12
--encoder-attention-heads 7 -> 24 6 8
--decoder-attention-heads 5 -> 24 4 6
--encoder-ffn mscffn --mscffn-subspaces 5 -> 4 6
--encoder-ffn mscffn --mscffn-subspaces 8 -> 6 12
--encoder-ffn mscffn --mscffn-subspaces -4 -> 2
--decoder-ffn mscffn --mscffn-subspaces 7 -> 6 8
--encoder-ffn mscffn --mscffn-expansion 0
--decoder-token-mixer fastformer -> softmax
--encoder-token-mixer lstm -> softmax fastformer
--encoder-token-mixer fastformer --fastformer-sharing tail -> query-value head layer
--encoder-token-mixer fastformer --fastformer-sharing none,head -> none,head
--encoder-token-mixer fastformer --fastformer-interaction power -> product add concat
--encoder-ffn big -> standard mscffn
--time-pooling median -> mean max min
--share-all-embeddings --decoder-embed-dim 48 -> --share-all-embeddings --encoder-embed-dim 24
--cross-self-attention --decoder-embed-dim 48 -> --cross-self-attention 24
--share-decoder-input-output-embed --decoder-output-dim 12 -> --decoder-embed-dim 24
--quant-noise-pq 0.1 -> remove it
--quant-noise-scalar 0.1 -> remove it
--encoder-embed-dim -24 -> from 1
--decoder-layers 1000000000 -> 1000
--dropout -0.1 -> from 0 to 1
--decoder-layerdrop nan -> from 0 to 1
--adaptive-softmax-cutoff 20,8 -> ascend
--adaptive-softmax-cutoff 8,100000 -> vocabulary
--adaptive-softmax-cutoff 8 --tie-adaptive-weights
--copy-next -> --copy-attention
--copy-attention -> join-dictionaries
--copy-attention --no-cross-attention -> --copy-attention
--copy-attention --decoder-layerdrop 0.1 -> --copy-attention
--base-layers 1
--encoder-layers-to-keep 0,1 -> --encoder-blocks 3,3
--decoder-layers-to-keep 0,0 -> 0 to 0
--decoder-layers-to-keep 3 -> 0 to 0
""".strip().splitlines()


def assert_one_clear_line(message, parts):
    assert "\n" not in message.strip() and len(message) < 400
    for part in parts:
        assert part in message, message


@pytest.mark.parametrize(
    "mistake, make",
    [*((m, from_words) for m in MISTAKES), *((m, from_yaml) for m in MISTAKES[::6])],
)
def test_mistakes_are_errors_of_one_line(parse, capsys, mistake, make):
    words, _, parts = mistake.partition(" -> ")
    # argparse ends the process for some, and the plan raises an error for the others
    with pytest.raises((ValueError, SystemExit)) as error:
        make(parse, ["--arch", "transformer_ftc", *TINY, *words.split()])
    message = str(error.value)
    if isinstance(error.value, SystemExit):
        message = capsys.readouterr().err.splitlines()[-1]
    assert_one_clear_line(message, ["--" + words.rpartition("--")[2].split()[0], *parts.split()])
    value = words.split()[-1]
    assert value in message or "," in value or "100000" in value  # lists, and too large ones


def test_a_misspelt_option_in_yaml_is_not_ignored(parse):
    with pytest.raises(ValueError) as error:
        from_yaml(parse, ["--arch", "transformer_ftc", *TINY, "--time-windov", "4"])
    assert_one_clear_line(str(error.value), ["time_windov", "time_window"])


YAML = """
# @package _group_
common: {{user_dir: {user_dir}, seed: 1, no_progress_bar: true, log_format: simple}}
task: {{_name: translation, data: {data}, source_lang: src, target_lang: tgt}}
dataset: {{max_tokens: 400, num_workers: 0}}
optimization: {{max_update: 3, lr: [0.003]}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
criterion: {{_name: label_smoothed_cross_entropy, label_smoothing: 0.1}}
checkpoint: {{save_dir: {save_dir}}}
model: {model}
"""


@pytest.mark.slow  # quick ones compose recipes with hydra, and start fairseq-hydra-train
def test_hydra_train_trains_the_same_model(
    run_process, run_train, run_generate, toy_data, tmp_path
):
    """fairseq-hydra-train with a YAML file and fairseq-train with flags: the same weights.

    It resumes what flags began, and its checkpoint translates.
    """
    words = ["--arch", "transformer_ftc", *TINY, "--encoder-blocks", "2,1", "--time-window", "3"]
    words += ["--encoder-token-mixer", "fastformer", "--dropout", "0.2", "--decoder-ffn", "mscffn"]
    options = yaml_of(words)
    options["_name"] = options.pop("arch")
    positions = {key: options.pop(key) for key in list(options) if key.startswith("max_")}
    optimization = "--optimizer adam --lr 0.003 --lr-scheduler fixed --max-tokens 400 --seed 1"
    optimization += " --criterion label_smoothed_cross_entropy --label-smoothing 0.1"
    flags = [toy_data.bin, *words, *optimization.split(), "--no-progress-bar"]
    run_train(*flags, "--save-dir", tmp_path / "flags", "--max-update", 3)
    run_train(*flags, "--save-dir", tmp_path / "yaml", "--max-update", 1)
    text = YAML.format(
        user_dir=USER_DIR, data=toy_data.bin, save_dir=tmp_path / "yaml", model=json.dumps(options)
    )
    text = text.replace("target_lang: tgt", "target_lang: tgt, " + json.dumps(positions)[1:-1])
    (tmp_path / "toy.yaml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "fairseq_cli.hydra_train", "--config-dir", tmp_path]
    result = run_process([*command, "--config-name", "toy", f"hydra.run.dir={tmp_path}"])
    assert result.returncode == 0, result.stdout[-3000:]
    assert f"Loaded checkpoint {tmp_path / 'yaml' / 'checkpoint_last.pt'}" in result.stdout
    states = [
        load_checkpoint_to_cpu(str(tmp_path / way / "checkpoint_last.pt"))["model"]
        for way in ("yaml", "flags")
    ]
    assert list(states[0]) == list(states[1])
    for name, tensor in states[0].items():
        if not name.endswith("_float_tensor"):  # fairseq never fills it: only its type counts
            assert torch.equal(tensor, states[1][name]), name
    words = [toy_data.bin, "--path", tmp_path / "yaml" / "checkpoint_last.pt", "--max-len-b", 3]
    assert run_generate(*words).output.count("\nH-") == 13
