"""The accelerated generator finds what fairseq's finds, with every option, in less work."""

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator

from fairseq_plugins.search.torch_backend import accelerate, grouped_top_k
from fairseq_plugins.search.torch_backend.ensemble import BeamEnsemble
from fairseq_plugins.search.torch_backend.grouped_top_k import best_continuations
from tests.search.torch_backend.conftest import assert_same_hypotheses
from tests.tiny_models import TINY

LENGTHS = (5, 1, 9, 3)
TWO_LAYERS = "--encoder-blocks 1,1 --decoder-layers 2"
pytestmark = pytest.mark.usefixtures("small_sizes")


@pytest.fixture(scope="module")
def model(build):
    return build(*TWO_LAYERS.split())


def assert_same_results(build_generator, models, sample, **options):
    results = []
    for accelerated in (True, False):
        generator = build_generator(models, accelerated, **options)
        assert isinstance(generator.model, BeamEnsemble) == accelerated
        torch.manual_seed(1)
        results.append(generator.generate(models, sample))
    assert_same_hypotheses(*results)
    said = {tuple(h["tokens"].tolist()) for hypotheses in results[0] for h in hypotheses}
    assert len(said) > 1, "all say the same: nothing is tested"


def test_other_searches(build_generator, dictionary, model, make_sample):
    sample = make_sample((6, 6, 6))
    for make in (
        lambda: {"search_strategy": search.Sampling(dictionary)},
        lambda: {"search_strategy": search.Sampling(dictionary, sampling_topk=5)},
        lambda: {"search_strategy": search.Sampling(dictionary, sampling_topp=0.8)},
        lambda: {"search_strategy": search.DiverseBeamSearch(dictionary, 5, 0.5)},
        lambda: {"search_strategy": search.DiverseSiblingsSearch(dictionary, 0.5)},
        lambda: {"match_source_len": True},
        lambda: {
            "search_strategy": search.LengthConstrainedBeamSearch(dictionary, 1, 0, 1, 0),
            "match_source_len": True,
        },
    ):
        found = []
        for accelerated in (True, False):
            torch.manual_seed(1)
            generator = build_generator([model], accelerated, **make())
            found.append(generator.generate([model], sample))
        assert_same_hypotheses(*found)


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_a_prefix_may_repeat_ngrams(build_generator, model, make_sample, accelerated, size):
    """Of the rest, no n-gram is repeated; sampling always takes fairseq's loop."""
    prefix = torch.tensor([[7, 7, 7, 7], [7, 7, 7, 1], [8, 9, 8, 9], [1, 1, 1, 1]])
    options = {"no_repeat_ngram_size": size}
    for strategy in (None, search.Sampling(model.decoder.dictionary)):
        generator = build_generator([model], accelerated, **options, search_strategy=strategy)
        found = generator.generate([model], make_sample(LENGTHS), prefix_tokens=prefix)
        for begin, hypotheses in zip(prefix.tolist(), found, strict=True):
            begin = begin[: (begin + [1]).index(1)]
            tokens = hypotheses[0]["tokens"].tolist()
            assert tokens[: len(begin)] == begin
            ngrams = list(zip(*(tokens[n:] for n in range(size))))
            rest = ngrams[max(0, len(begin) - size + 1) :]
            assert len(set(rest)) == len(rest) and not set(rest) & set(ngrams[: -len(rest)])


@pytest.mark.parametrize(
    "words",
    [
        "--decoder-normalize-before --layernorm-embedding",
        "--decoder-learned-pos --no-scale-embedding --max-target-positions 13",
        "--no-token-positional-embeddings --decoder-ffn mscffn",
        "--adaptive-softmax-cutoff 8,20",
        "--decoder-output-dim 12",
        "--share-decoder-input-output-embed --activation-fn gelu",
        "--encoder-token-mixer fastformer --encoder-ffn mscffn",
        # fairseq's own
        "--decoder-layers 2 --quant-noise-pq 0.1 --quant-noise-pq-block-size 2",
        "--decoder-layers 1 --decoder-normalize-before --share-decoder-input-output-embed",
        "--decoder-layers 1 --adaptive-softmax-cutoff 8,20 --layernorm-embedding",
    ],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_decoders(build, build_generator, make_sample, words, side):
    if words.startswith("--decoder-layers"):
        model = build(*words.split(), arch="transformer")
    else:
        model = build(*TWO_LAYERS.split(), *words.split())
    assert_same_results(build_generator, [model], make_sample(LENGTHS, side=side))


def test_a_bf16_model_searches_in_bf16(build, build_generator, make_sample):
    model = build(*TWO_LAYERS.split()).to(torch.bfloat16)
    sample = make_sample(LENGTHS)
    found = build_generator([model], True).generate([model], sample)
    expected = build_generator([model], False).generate([model], sample)
    best = [[h[0]["tokens"].tolist() for h in some] for some in (found, expected)]
    assert sum(a == b for a, b in zip(*best)) >= len(LENGTHS) - 1


def test_the_source_is_projected_once_and_a_step_costs_one_token_a_hypothesis(
    build_generator, model, make_sample
):
    layer, rows = model.decoder.layers[0], {"encoder_attn": [], "self_attn": []}
    hooks = [
        getattr(getattr(layer, name), projection).register_forward_hook(
            lambda module, args, out, shapes=shapes: shapes.append(out.shape[:-1])
        )
        for name, shapes in rows.items()
        for projection in ("k_proj", "v_proj")
    ]
    generator = build_generator([model], True, min_len=6, max_len_b=6)
    generator.generate([model], make_sample(LENGTHS))
    for hook in hooks:
        hook.remove()
    sentences = len(LENGTHS)
    assert rows["encoder_attn"] == [(max(LENGTHS), sentences)] * 2
    of_steps = [sentences] + [5 * sentences] * 6
    assert [shape.numel() for shape in rows["self_attn"][::2]] == of_steps


def test_a_decoder_without_layers_is_left_to_fairseq(build, build_generator, make_sample):
    empty = build("--decoder-layers", 0, arch="transformer")
    found, expected = (
        build_generator([empty], accelerated).generate([empty], make_sample(LENGTHS))
        for accelerated in (True, False)
    )
    assert len(found) == len(LENGTHS)
    for some, others in zip(found, expected):
        assert [a["tokens"].tolist() for a in some] == [b["tokens"].tolist() for b in others]


def test_subclasses_are_left_alone(build, dictionary, model):
    class OtherGenerator(SequenceGenerator):
        pass

    generator = OtherGenerator([model], dictionary)
    assert type(accelerate(generator).model) is EnsembleModel
    assert type(generator.search) is search.BeamSearch
    for arch, part_of in (
        ("transformer", lambda model: model),
        ("transformer_ftc", lambda model: model),
        ("transformer_ftc", lambda model: model.decoder.layers[0]),
    ):
        own = build("--decoder-layers", "1", arch=arch)
        part = part_of(own)
        part.__class__ = type("Other", (type(part),), {})
        generator = accelerate(SequenceGenerator([model, own], dictionary))
        assert type(generator.model) is EnsembleModel


def test_what_it_does_not_know_is_left_alone(build, dictionary, model, parse):
    for option in ("no_cross_attention", "cross_self_attention", "scale_attn", "scale_resids"):
        setup = parse("--arch", "transformer_ftc", *TINY, *TWO_LAYERS.split())
        setattr(setup.args, option, True)  # not all are on fairseq's command line
        other = setup.build_model()
        generator = accelerate(SequenceGenerator([other], dictionary))
        assert type(generator.model) is EnsembleModel, option
    other = build(*TWO_LAYERS.split(), "--dropout", "0.1")
    other.make_generation_fast_(retain_dropout=True, retain_dropout_modules=None)
    assert type(accelerate(SequenceGenerator([other], dictionary)).model) is EnsembleModel
    assert accelerate("no generator") == "no generator"


def test_the_best_continuations_are_those_of_beam_search(dictionary, monkeypatch):
    monkeypatch.setattr(grouped_top_k, "GROUP", 64)
    generator = torch.Generator().manual_seed(1)
    plain = search.BeamSearch(dictionary)
    for vocabulary, beam in ((640, 5), (701, 5), (6344, 4), (1000, 1), (100, 5), (9, 5)):
        lprobs = torch.randn(3, beam, vocabulary, generator=generator).log_softmax(dim=-1)
        lprobs[:, :, 1] = -float("inf")
        # the best ones in one group, and in what is left over
        lprobs[0, 0, :: vocabulary // 64 or 2] += 9
        lprobs[1, :, -7:] += 9
        scores = torch.randn(3, beam, 2, generator=generator)
        for step, some, past in (
            (0, lprobs[:, :1], torch.zeros(3, 1)),
            (2, lprobs, scores[:, :, 1]),
        ):
            found = best_continuations(some, past, beam)
            expected = plain.step(step, lprobs, scores[:, :, :step])
            for a, b in zip(found, expected):
                assert torch.equal(a, b)
