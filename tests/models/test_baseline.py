"""With every choice at the Transformer's, the model is fairseq's `transformer`, bit for bit."""

import copy

import pytest
import torch

from tests.tiny_models import TINY, drop_mscffn

CHOICES = (
    "--time-window 1 --feature-window 1 --encoder-token-mixer softmax --encoder-ffn standard"
    " --decoder-ffn standard"
).split()
DROPOUTS = "--dropout 0.3 --attention-dropout 0.2 --activation-dropout 0.1".split()
OPTIONS = {
    "post-norm": [],
    "pre-norm": ["--encoder-normalize-before", "--decoder-normalize-before"],
    "gelu": ["--activation-fn", "gelu"],
    "learned positions": ["--encoder-learned-pos", "--decoder-learned-pos"],
    "old name of a dropout": "--activation-dropout 0 --relu-dropout 0.2".split(),
    "layerdrop": "--encoder-layerdrop 0.4 --decoder-layerdrop 0.4".split(),
    "embedding norm": ["--layernorm-embedding", "--no-scale-embedding"],
    "shared embeddings": ["--share-decoder-input-output-embed"],
    "decoder alone": ["--no-cross-attention"],
    "cross self-attention": ["--cross-self-attention"],
    "all embeddings shared": ["--merge-src-tgt-embed"],
    "adaptive input": ["--adaptive-input"],
    "checkpointed": ["--checkpoint-activations"],
}


@pytest.fixture(scope="module")
def pairs(parse):
    """Baseline and model with the same weights, in float32 as fairseq builds them."""
    cache = {}

    def make(name, arch="transformer_ftc", layers=3):
        key = (name, arch, layers)
        if key not in cache:
            words = DROPOUTS + OPTIONS[name]
            baseline = parse(
                *["--arch", "transformer", *drop_mscffn(TINY), *words, "--encoder-layers", layers]
            )
            expected = baseline.build_model()
            setup = parse("--arch", arch, *TINY, *words, *CHOICES, "--encoder-blocks", layers)
            model = setup.build_model(seed=2)
            # as fairseq loads a checkpoint: it upgrades the state in place
            state = {name: tensor.clone() for name, tensor in expected.state_dict().items()}
            model.load_state_dict(state, strict=True, model_cfg=setup.args)
            cache[key] = expected, model
        return cache[key]

    return make


def test_normalisation_of_the_oldest_checkpoints_has_other_names(pairs):
    expected, model = pairs(next(iter(OPTIONS)))
    names = {"self_attn_layer_norm": "layer_norms.0", "final_layer_norm": "layer_norms.1"}
    state = {}
    for name, tensor in expected.state_dict().items():
        for new, old in names.items() if name.startswith("encoder.layers.") else ():
            name = name.replace(new, old)
        state[name] = tensor + 1
    assert "encoder.layers.0.layer_norms.1.weight" in state
    loaded = copy.deepcopy(model)
    loaded.load_state_dict(state, strict=True)
    norms = loaded.encoder.layers[0].final_layer_norm, model.encoder.layers[0].final_layer_norm
    assert torch.equal(norms[0].weight, norms[1].weight + 1)


def test_some_layers_of_a_transformer_are_loaded(pairs, parse, make_sample):
    """As `--finetune-from-model` does; fairseq's own pruned model is the reference."""
    state, outputs = pairs("post-norm")[0].state_dict(), []
    for arch, words in (
        ("transformer", [*drop_mscffn(TINY), "--encoder-layers", 3]),
        ("transformer_ftc", [*TINY, *CHOICES, "--encoder-blocks", 3]),
    ):
        setup = parse("--arch", arch, *words)
        setup.args.encoder_layers_to_keep, setup.args.decoder_layers_to_keep = "0,2", "0"
        model = setup.build_model(seed=2).eval()
        model.load_state_dict(dict(state), strict=True, model_cfg=setup.args)
        outputs.append(model(**make_sample((5, 1, 7))["net_input"])[0])
    assert torch.equal(*outputs)


def gradients_of(model):
    """By value: names of the same weight differ between the two models."""
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


# the architectures are one model: the options are tried on one of them
CASES = [(name, "transformer_ftc") for name in sorted(OPTIONS)]
CASES += [("post-norm", "fastformer_encoder"), ("pre-norm", "mscffn_transformer")]


@pytest.mark.parametrize("name, arch", CASES)
def test_forward_and_gradients_are_equal_bit_for_bit(pairs, make_sample, name, arch):
    expected, model = pairs(name, arch)
    sample = make_sample((5, 1, 7))
    for training, seed in ((True, 17), (True, 18), (True, 19), (False, 17)):
        found = []
        for candidate in (expected, model):
            candidate.train(training)
            candidate.zero_grad()
            torch.manual_seed(seed)
            logits, _ = candidate(**sample["net_input"])
            log_probs = candidate.get_normalized_probs((logits, None), log_probs=True)
            if training:
                log_probs[..., 7].sum().backward()
            found.append((logits, torch.get_rng_state()))
        assert torch.equal(found[0][0], found[1][0])
        assert torch.equal(found[0][1], found[1][1]), "a different number of random draws"
        if training:
            true, actual = gradients_of(expected), gradients_of(model)
            assert len(true) == len(actual) > 0
            renamed = dict(expected.state_dict(), **true)  # as a checkpoint has them
            model.upgrade_state_dict_named(renamed, "")
            for key, gradient in actual.items():
                assert torch.equal(gradient, renamed[key]), key


def test_no_parameter_more_or_less_and_the_same_order(pairs):
    """Optimizer states follow it."""
    expected, model = pairs("post-norm")
    sizes = [[tuple(p.shape) for p in m.parameters()] for m in (expected, model)]
    assert sizes[0] == sizes[1]


def test_the_optimizer_of_the_transformer_fits(
    toy_data, tiny_checkpoint, train_args, run_train, tmp_path
):
    """Training goes on from fairseq's checkpoint as fairseq's own model does."""
    updates = []
    for arch in (["transformer"], ["transformer_ftc", "--encoder-blocks", "2", *CHOICES]):
        folder = tmp_path / arch[0]
        words = [toy_data.bin, *train_args, "--save-dir", folder, "--dropout", "0"]
        words += ["--encoder-layers", "2", "--arch", *arch]
        run_train(*words, "--restore-file", tiny_checkpoint, "--max-update", "7")
        updates.append(torch.load(folder / "checkpoint_last.pt", weights_only=False))
    true, found = (state["model"] for state in updates)
    assert len(true) == len(found)
    for name in (name for name in true if name.startswith("decoder.")):
        assert torch.equal(true[name], found[name]), name


def test_dropout_retained_in_generation_has_fairseqs_names(pairs):
    baseline, model = pairs("post-norm")
    names = {
        module.module_name
        for module in baseline.modules()
        if getattr(module, "module_name", None) is not None
    }
    assert len(names) >= 5
    for name in sorted(names):
        counts = []
        for one in map(copy.deepcopy, (baseline, model)):
            one.make_generation_fast_(retain_dropout=True, retain_dropout_modules=[name])
            counts.append(sum(getattr(m, "apply_during_inference", False) for m in one.modules()))
        assert counts[0] == counts[1] > 0
