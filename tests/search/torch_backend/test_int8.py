"""8-bit matrix products: what is quantised, how close it stays, and what is refused."""

from unittest import mock

import pytest
import torch
from torch import nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.token_mixers import Fastformer
from fairseq_plugins.search.torch_backend.int8 import ENGINES_WITH_SCALES_PER_OUTPUT, quantize

WIDE = "--encoder-embed-dim 48 --decoder-embed-dim 48 --decoder-layers 2".split()
MODELS = [  # tests/contract has each mixer and network
    "transformer_ftc --encoder-blocks 1,1 --feature-pooling linear --decoder-normalize-before",
    "transformer_ftc --encoder-blocks 1,1 --share-decoder-input-output-embed",
    "transformer_ftc --encoder-blocks 1,1 --adaptive-softmax-cutoff 8,20",
    "fastformer_encoder --encoder-blocks 1,1 --time-window 2 --decoder-ffn mscffn",
    "transformer --encoder-layers 2",
    "transformer_ftc --encoder-blocks 1,1 --copy-attention",
]


@pytest.fixture(scope="module", params=MODELS)
def models(request, build_joined):
    return pair(build_joined, request.param)


def pair(build, words):
    """A model in float32, and the same one quantised."""
    arch, *more = words.split()
    models = [build(*WIDE, *more, arch=arch, plain=True).eval() for _ in range(2)]
    return models[0], quantize(models[1])


def test_the_function_stays_close(models, make_sample):
    model, quantised = models
    net_input = make_sample((5, 1, 30))["net_input"]
    with torch.no_grad():
        exact, rounded = (
            m.get_normalized_probs(m(**net_input), log_probs=True) for m in (model, quantised)
        )
    real = net_input["prev_output_tokens"].ne(1)
    difference = (rounded - exact)[real]
    assert 0 < difference.norm() < 0.05 * (exact - exact.mean())[real].norm()


def test_what_is_quantised(models):
    model, quantised = models
    linear = {name for name, module in model.named_modules() if type(module) is nn.Linear}
    left = {name for name, module in quantised.named_modules() if type(module) is nn.Linear}
    exact = ("adaptive_softmax", "copying")
    assert left == {name for name in linear if name.split(".")[1] in exact}
    per_output = torch.backends.quantized.engine in ENGINES_WITH_SCALES_PER_OUTPUT
    scheme = torch.per_channel_affine if per_output else torch.per_tensor_affine
    for name, module in quantised.named_modules():
        if name in linear - left:
            assert module.weight().dtype == torch.qint8, name
            assert module.weight().qscheme() == scheme, name
        elif isinstance(module, (nn.Embedding, nn.LayerNorm)):
            assert module.weight.dtype == torch.float32, name
    shared = quantised.decoder.embed_tokens.weight
    assert torch.equal(shared, model.decoder.embed_tokens.weight)


def test_generation(models, build_generator, make_sample):
    """The accelerated generator and fairseq's differ by rounding alone."""
    _, quantised = models
    sample = make_sample((5, 1, 9, 3))
    fast, plain = (
        build_generator([quantised], accelerated).generate([quantised], sample)
        for accelerated in (True, False)
    )
    for some, others in zip(fast, plain):
        scores = [torch.stack([h["score"] for h in hypotheses]) for hypotheses in (some, others)]
        assert torch.allclose(*scores, atol=0.02)


def test_a_long_source_does_not_take_the_other_form_of_fastformer(build, make_sample):
    model, quantised = pair(build, "fastformer_encoder --encoder-blocks 2")
    mixers = [module for module in quantised.modules() if isinstance(module, Fastformer)]
    assert mixers and not any(mixer.can_reassociate for mixer in mixers)
    net_input = make_sample((60, 55))["net_input"]  # longer than d
    with torch.no_grad():
        exact, rounded = model(**net_input)[0], quantised(**net_input)[0]
    assert (rounded - exact).norm() < 0.05 * exact.norm()


def test_torch_s_announcements_are_not_shown(build, recwarn):
    pair(build, MODELS[0])
    assert not [warning for warning in recwarn if "quant" in str(warning.message)]


def test_what_cannot_be_quantised(build):
    def model():
        return build(*WIDE, "--encoder-blocks", "1,1", plain=True)

    with pytest.raises(ConfigurationError, match="--int8 is for CPUs"):
        quantize(model().to("meta"))
    with mock.patch.object(type(torch.backends.quantized), "engine", "none"):
        with pytest.raises(ConfigurationError, match="has no 8-bit products"):
            quantize(model())
