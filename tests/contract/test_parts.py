"""What every registered token mixer and feed-forward network must do.

The registries say what there is. A new part needs an entry in `references.py`, which says what it
computes, and nothing here. Sentences are short and sizes are no powers of two.
"""

import copy
import functools
import itertools
import re
from argparse import ArgumentParser
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from fairseq.dataclass import FairseqDataclass
from torch.utils.checkpoint import checkpoint

from fairseq_plugins.errors import flag
from fairseq_plugins.layers import feed_forwards, token_mixers
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS, FeedForwardSpec
from fairseq_plugins.layers.registry import Registry
from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS, MixerSpec
from fairseq_plugins.search.torch_backend.int8 import quantize
from tests.batches import (
    SIDES,
    assert_close,
    assert_same,
    assert_same_function,
    leaves_of,
    make_sentences,
    pad,
    padding_mask,
    randomize,
    run_or_skip,
    unpad,
    value_and_gradients,
)
from tests.contract import references

LENGTHS = (4, 1, 9, 2, 7, 3, 17, 8, 5, 6)
DIM, MEMORY_DIM, HEADS = 15, 21, 3
FFN_DIM, INNER_DIM = 24, 36
PARTS = {
    "mixer": (TOKEN_MIXERS, references.MIXERS),
    "ffn": (FEED_FORWARDS, references.FEED_FORWARDS),
}


def check_references(registry, known):
    """Every part has a reference, and every reference has a part."""
    missing, unknown = set(registry) - set(known), set(known) - set(registry)
    assert not missing, (
        f"each {registry.kind} needs a reference in tests/contract/references.py: "
        f"{', '.join(missing)} has none"
    )
    assert not unknown, f"no {registry.kind} is registered as {', '.join(unknown)}"


@pytest.mark.parametrize("kind", sorted(PARTS))
def test_every_part_has_a_reference(kind):
    check_references(*PARTS[kind])


def test_options_of_a_name_of_two_words_are_those_of_messages_and_recipes():
    @dataclass
    class Options(FairseqDataclass):
        inner_width: int = field(default=3, metadata={"help": "a width"})

    registry = Registry("token mixer", default="softmax")
    registry.register("two_words", Options)(torch.nn.Linear)
    parser = ArgumentParser()
    registry.add_options(parser)
    (name, _), *_ = registry.options()
    args = parser.parse_args([flag(name), "7"])
    assert flag(name) == "--two-words-inner-width" and args.two_words_inner_width == 7


@pytest.mark.parametrize("package", [token_mixers, feed_forwards])
def test_every_file_of_parts_is_imported(package):
    imports, found = Path(package.__file__).read_text(encoding="utf-8"), 0
    for path in Path(package.__file__).parent.glob("*.py"):
        if re.search(r"^@register_", path.read_text(encoding="utf-8"), re.MULTILINE):
            assert f"from .{path.stem} import" in imports, f"{package.__file__} does not import it"
            found += 1
    assert found > 1


def test_every_option_has_a_name_of_its_own():
    from fairseq.models.transformer import TransformerModel

    from fairseq_plugins.models.options import plugin_options

    parser = ArgumentParser()
    TransformerModel.add_args(parser)  # fairseq drops an option of the same name in silence
    names = [action.dest for action in parser._actions] + [name for name, _ in plugin_options()]
    assert len(names) == len(set(names))


class Part:
    """One part with one set of options, in one of its forms."""

    def __init__(self, kind, name, options, form):
        self.kind, self.name, self.options, self.form = kind, name, options, form
        self.reference = PARTS[kind][1][name]
        self.is_mixer = kind == "mixer"
        self.dim = DIM if self.is_mixer else FFN_DIM
        # fairseq's attention and the gradients of linear layers multiply padding by zero
        self.poison = float("nan") if self.is_mixer and name != "softmax" else 1e9

    def build(self, dtype=torch.float64, memory_dim=DIM, random=True, dim=DIM, **numbers):
        """With no parameter at zero or one, where a mistake would hide; in evaluation.

        Without `random` with the parameters that a training begins with.
        """
        torch.manual_seed(1)  # a module is the same one whatever ran before
        registry = PARTS[self.kind][0]
        part, options = registry._parts[self.name]
        if self.is_mixer:
            spec = MixerSpec(dim, memory_dim, HEADS, **numbers)
        else:
            spec = FeedForwardSpec(FFN_DIM, INNER_DIM, **numbers)
        module = part(spec, options(**self.options)).eval()
        module = (randomize(module) if random else module).to(dtype)
        self.reference.forms[self.form](module)
        return module

    def rows(self, module, *inputs):
        """What the reference says of one sentence."""
        if self.is_mixer:
            return self.reference.rows(module, HEADS, self.options, *inputs)
        return self.reference.rows(module, self.options, *inputs)

    def run(self, module, x, mask=None, memory=None, memory_mask=None):
        if not self.is_mixer:
            return module(x)
        return module(x, *((x, mask, mask) if memory is None else (memory, mask, memory_mask)))


def parts(first_options_only=False, each_form=True):
    found = []
    for kind, (registry, known) in PARTS.items():
        for name in registry:
            reference = known.get(name)
            if reference is None:
                continue  # which the first test says
            options = reference.options[:1] if first_options_only else reference.options
            forms = list(reference.forms)[: None if each_form else 1]
            for chosen, form in itertools.product(options, forms):
                values = ",".join(str(value) for value in chosen.values())
                identity = "-".join(word for word in (name, values, form) if word)
                found.append(pytest.param(Part(kind, name, chosen, form), id=identity))
    return found


every_part = pytest.mark.parametrize("part", parts())
every_choice = parts(each_form=False)  # of options, for tests that try all forms against one truth
every_form = pytest.mark.parametrize("part", parts(first_options_only=True))
every_mixer = pytest.mark.parametrize("part", [p for p in parts(True) if p.values[0].is_mixer])
every_name = pytest.mark.parametrize(
    "kind, name", [(kind, name) for kind, (registry, _) in PARTS.items() for name in registry]
)


def forms(part):
    return [Part(part.kind, part.name, part.options, form) for form in part.reference.forms]


@pytest.mark.parametrize("part", every_choice)
def test_equals_the_reference_in_any_batch(part):
    """Values and all gradients, for each sentence alone: neither padding nor neighbours count."""
    x, expected = make_sentences(LENGTHS, part.dim), None
    for form, side in itertools.product(forms(part), SIDES):
        module, mask = form.build(), padding_mask(LENGTHS, side)
        leaves = leaves_of(module, x=x)

        def in_a_batch(form=form, module=module, mask=mask):
            padded = pad(x, mask, form.poison)
            out = form.run(module, padded, mask)
            assert out.shape == padded.shape
            return unpad(out, mask)

        def alone(module=module):
            inputs = 2 if part.is_mixer else 1
            return [part.rows(module, *[sentence] * inputs) for sentence in x]

        expected = expected or value_and_gradients(alone, leaves)
        try:
            assert_same(value_and_gradients(in_a_batch, leaves), expected)
        except AssertionError as error:
            where = "right alone, so padding, other sentences or a gradient are wrong"
            for sentence, rows in zip(x, alone()):
                found = form.run(module, sentence.unsqueeze(1)).squeeze(1)
                if not torch.allclose(found, rows, rtol=1e-4, atol=1e-4):
                    where = "a sentence alone differs from the reference"
            told = f"form {form.form}, padding on the {side}: {where}: {error}"
            raise AssertionError(told) from None


@pytest.mark.parametrize("memory_dim, side", list(zip((DIM, MEMORY_DIM), SIDES)))
@pytest.mark.parametrize("part", [p for p in every_choice if p.values[0].is_mixer])
def test_reads_a_memory_of_another_length_and_size(part, side, memory_dim):
    lengths, memory_lengths = (4, 1, 6), (7, 2, 11)
    x, memory = make_sentences(lengths, DIM), make_sentences(memory_lengths, memory_dim, seed=1)
    mask, memory_mask = padding_mask(lengths, side), padding_mask(memory_lengths, side, width=13)
    padded = pad(x, mask, part.poison), mask, pad(memory, memory_mask, part.poison), memory_mask
    expected = None
    for form in forms(part):
        module = form.build(memory_dim=memory_dim)
        leaves = leaves_of(module, x=x, memory=memory)
        expected = expected or value_and_gradients(
            lambda m=module: [part.rows(m, *pair) for pair in zip(x, memory)], leaves
        )
        found = value_and_gradients(
            lambda form=form, m=module: unpad(form.run(m, *padded), mask), leaves
        )
        assert_same(found, expected)


@pytest.mark.parametrize("window, lengths, memory_lengths, side", [
    (2, (7, 1, 3), (13, 1, 6), "left"), (4, (4, 2), (13, 8), "right"),
])  # fmt: skip
@every_mixer
def test_pooled_queries_equal_the_reference(part, window, lengths, memory_lengths, side):
    module = part.build(memory_dim=MEMORY_DIM, time_window=window)
    x, mask = make_sentences(lengths, DIM), padding_mask(lengths, side)
    memory = make_sentences(memory_lengths, MEMORY_DIM, seed=1)
    memory_mask = padding_mask(memory_lengths, side)

    def in_a_batch():
        padded, padded_memory = (
            pad(*given, part.poison) for given in ((x, mask), (memory, memory_mask))
        )
        return unpad(part.run(module, padded, mask, padded_memory, memory_mask), mask)

    assert_same_function(
        in_a_batch,
        lambda: [part.rows(module, *pair, window) for pair in zip(x, memory)],
        leaves_of(module, x=x, memory=memory),
    )


@every_part
def test_every_parameter_has_a_finite_gradient(part):
    for dtype in (torch.float32, torch.bfloat16):
        module = part.build(dtype).train()
        mask = padding_mask((5, 1, 3))
        x = torch.randn(5, 3, part.dim).to(dtype).requires_grad_()
        out = run_or_skip(functools.partial(part.run, module, x, mask))
        out.float().pow(2).sum().backward()
        assert_finite_gradients(part, module, x)


def start_of(part):
    """The deviations of scores and of outputs with which training begins; without scores, None.

    Of features of deviation 1, as after LayerNorm, and of a mixer in sentences of the greatest
    length. Where there are several softmaxes, that of the largest scores.
    """
    sizes = {"memory_dim": 60, "dim": 60, "max_positions": 64} if part.is_mixer else {}
    module = part.build(torch.float32, random=False, **sizes)
    x = torch.randn(64, 8, sizes.get("dim", part.dim), generator=torch.Generator().manual_seed(1))
    found = []

    def softmax(scores, *args, plain=torch.softmax, **kwargs):
        if scores.numel() > 0:
            found.append(scores[scores > -1e4].std().item())  # what is hidden is far below
        return plain(scores, *args, **kwargs)

    def attention(q, k, *args, plain=F.scaled_dot_product_attention, **kwargs):
        found.append((q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).std().item())
        return plain(q, k, *args, **kwargs)

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "softmax", softmax)
        patch.setattr(F, "scaled_dot_product_attention", attention)
        outputs = part.run(module, x).std().item()
    has_scores = part.is_mixer and module.drops_weights
    assert found or not has_scores, (
        f"{part.name} has no softmax of scores: let it say drops_weights = False"
    )
    return max(found) if has_scores else None, outputs


@every_part
def test_training_begins_with_numbers_of_the_right_size(part):
    """A wrong start passes every other test, and the model hardly learns: Linformer's did."""
    scores, outputs = start_of(part)
    if scores is not None:
        expected, _ = start_of(Part("mixer", "softmax", {}, "only"))
        low, high = part.reference.scores
        assert low * expected <= scores <= high * expected, (
            f"{part.name}: scores deviate by {scores:.2g}, those of softmax by {expected:.2g}: "
            f"initialise what makes them so that the ratio is {low} to {high}"
        )
    low, high = part.reference.outputs
    assert low <= outputs <= high, (
        f"{part.name}: outputs deviate by {outputs:.2g}, not {low} to {high}: change how it is "
        "initialised, or `outputs` of its Reference if the equation is so"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@every_mixer
def test_padding_alone_and_large_numbers_are_finite(part, dtype):
    module = part.build(dtype, random=False)
    mask = padding_mask((0, 5, 0))
    x = (30 * torch.randn(5, 3, DIM)).to(dtype).requires_grad_()
    out = run_or_skip(lambda: part.run(module, x, mask))
    assert out.dtype == dtype and torch.isfinite(out).all()
    # products of three features: as in training, the loss is scaled until gradients fit float16
    scale = 2.0**-13 if part.name == "fastformer" else 1.0
    (scale * out.float().pow(2).mean()).backward()
    assert_finite_gradients(part, module, x)


@pytest.mark.parametrize("shift", [-100.0, -40.0, 40.0])
@every_mixer
def test_queries_and_keys_far_from_zero_have_finite_gradients(part, shift):
    """Feature maps of linear attention become 0 there, and flows of 0 were divisors."""
    module = part.build(torch.float32, random=False)
    for name, layer in module.named_modules():
        if name.endswith(("q_proj", "k_proj")):
            torch.nn.init.constant_(layer.bias, shift)
    x = torch.randn(7, 3, DIM).requires_grad_()
    out = part.run(module, x, padding_mask((7, 1, 4)))
    assert torch.isfinite(out).all()
    out.pow(2).mean().backward()
    assert_finite_gradients(part, module, x)


def assert_finite_gradients(part, module, x):
    for name, tensor in [("x", x), *module.named_parameters()]:
        assert tensor.grad is not None, (
            f"{part.name}: no output depends on {name}: leave it out (a MultiHeadMixer says in "
            "`projections` which of q, k and v it has)"
        )
        assert torch.isfinite(tensor.grad).all(), f"{part.name}: the gradient of {name} overflows"


@every_form
def test_dropout_acts_in_training_alone(part):
    module, x = part.build(dropout=0.5), torch.randn(9, 2, part.dim).double()
    assert torch.equal(part.run(module, x), part.run(part.build(), x))
    torch.manual_seed(1)
    acts = not torch.equal(part.run(module.train(), x), part.run(module.eval(), x))
    expected = module.drops_weights if part.is_mixer else True
    assert acts == expected, (
        f"{part.name}: in training, dropout {'acts' if acts else 'does nothing'}: mend it, or let "
        f"the mixer say drops_weights = {acts}"
    )


@every_part
def test_scripted_equals_eager(part):
    module = part.build()
    scripted = torch.jit.script(module)
    x, mask = torch.randn(6, 2, part.dim).double(), padding_mask((6, 2), "left")
    for given in (None, mask):
        # fairseq's attention normalises in float32 when it is scripted
        assert_close(part.run(scripted, x, given), part.run(module, x, given), tolerance=1e-6)


@pytest.mark.parametrize("part", every_choice)
def test_bfloat16_is_as_near_as_the_plain_equations(part):
    """max |bf16 - exact| <= 2 max |the reference in bf16 - exact|, the worst of some draws."""
    modules = {form: form.build(torch.bfloat16) for form in forms(part)}
    module = next(iter(modules.values()))
    exact_module = copy.deepcopy(module).double()
    worst = dict.fromkeys([*modules, None], 0.0)  # None: of the reference
    for seed in range(4):
        x = make_sentences((9,), part.dim, seed)[0].detach().bfloat16()
        inputs = 2 if part.is_mixer else 1
        exact = part.rows(exact_module, *[x.double()] * inputs)
        found = {None: part.rows(module, *[x] * inputs)}
        for form, own in modules.items():
            run = functools.partial(form.run, own, x.unsqueeze(1))
            found[form] = run_or_skip(run).squeeze(1)
            assert found[form].dtype == torch.bfloat16
        for form, value in found.items():
            worst[form] = max(worst[form], (value.double() - exact).abs().max().item())
    for form in modules:
        assert 0 < worst[form] <= 2 * worst[None], (
            f"{part.name}, form {form.form}: in bfloat16 it is off by {worst[form]:.2g}, its "
            f"reference by {worst[None]:.2g}: compute the sums in float32, as Float32Mixer does"
        )


@every_form
def test_long_sentences_under_autocast(part):
    """--amp rounds products to float16, whose largest number is 65,504; sums over time are larger.

    Linear attention once overflowed from 2,048 positions on and gave its bias alone.
    """
    module = part.build(torch.float32, **({"max_positions": 2048} if part.is_mixer else {}))
    x = 4 * torch.randn(2048, 1, part.dim)
    with torch.no_grad():
        exact = part.run(module, x)
        with torch.autocast("cpu", dtype=torch.float16):
            found = run_or_skip(lambda: part.run(module, x))
    mean = exact.mean(dim=0)  # a constant must not count as near
    off = (found.float() - exact).norm() / (exact - mean).norm()
    assert off < 0.02, (  # also if it is not finite
        f"{part.name}: with 2,048 positions in float16 it is off by {off:.2g}: compute sums over "
        "time in float32, as Float32Mixer does"
    )


@every_form
def test_gradients_under_autocast(part):
    """Products are in bfloat16, parameters and their gradients in float32."""
    module = part.build(torch.float32)
    x = torch.randn(40, 2, part.dim)
    part.run(module, x).pow(2).sum().backward()
    exact = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = part.run(module, x)
    out.float().pow(2).sum().backward()
    for expected, parameter in zip(exact, module.parameters()):
        assert parameter.grad.dtype == torch.float32
        largest = expected.abs().max()  # nearly 0 of a bias that moves all scores alike
        assert (parameter.grad - expected).abs().max() <= 0.05 * largest + 1e-2 or largest < 1e-3


@every_form
def test_checkpointed_activations_change_nothing(part):
    """Computed twice, with the same dropped."""
    module = part.build(dropout=0.4).train()
    x = torch.randn(7, 2, part.dim).double().requires_grad_()
    leaves = [x, *module.parameters()]
    results = []
    for reentrant in (None, True, False):
        torch.manual_seed(1)
        if reentrant is None:
            out = part.run(module, x)
        else:
            out = checkpoint(lambda x: part.run(module, x), x, use_reentrant=reentrant)
        out.pow(2).sum().backward()
        assert_finite_gradients(part, module, x)
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
        for leaf in leaves:
            leaf.grad = None
    for found in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found, results[0]))


def options_of(kind, name):
    if kind == "mixer":
        return ["--encoder-token-mixer", name]
    return ["--encoder-ffn", name, "--decoder-ffn", name]


@every_name
def test_8_bit_products_stay_close(build, make_sample, kind, name):
    words = "--encoder-embed-dim 48 --decoder-embed-dim 48 --encoder-blocks 1,1".split()
    words += options_of(kind, name)
    net_input = make_sample((5, 1, 60))["net_input"]  # longer than d
    model = build(*words, plain=True).eval()
    with torch.no_grad():
        exact, rounded = (m(**net_input)[0] for m in (model, quantize(copy.deepcopy(model))))
    assert 0 < (rounded - exact).norm() < 0.05 * exact.norm()


@every_name
def test_a_compressed_model_is_built_trained_and_read_back(build, make_sample, kind, name):
    """By its name alone: layers of all sizes, every parameter trained, the same state."""
    words = ["--encoder-blocks", "2,1,1", *options_of(kind, name)]
    model, other = (build(*words, plain=True, seed=seed) for seed in (1, 2))
    net_input = make_sample((5, 1, 7))["net_input"]
    model.train()(**net_input)[0].pow(2).sum().backward()
    for parameter_name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, parameter_name
            assert torch.isfinite(parameter.grad).all(), parameter_name
    other.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(other.eval()(**net_input)[0], model.eval()(**net_input)[0])
