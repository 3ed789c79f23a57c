"""The accelerated generator finds what fairseq's finds, with every option, in less work."""

import re

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
    sample = make_sample(LENGTHS)
    for make in (
        lambda: search.Sampling(dictionary),
        lambda: search.Sampling(dictionary, sampling_topk=5),
        lambda: search.Sampling(dictionary, sampling_topp=0.8),
        lambda: search.DiverseBeamSearch(dictionary, 5, 0.5),
        lambda: search.DiverseSiblingsSearch(dictionary, 0.5),
    ):
        torch.manual_seed(1)
        found = build_generator([model], True, search_strategy=make()).generate([model], sample)
        torch.manual_seed(1)
        expected = build_generator([model], False, search_strategy=make()).generate([model], sample)
        assert_same_hypotheses(found, expected)


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


def test_a_constraint_on_the_length(build_generator, dictionary, model, make_sample):
    for accelerated in (True, False):
        generator = build_generator(
            [model],
            accelerated,
            search_strategy=search.LengthConstrainedBeamSearch(dictionary, 1, 0, 1, 0),
            match_source_len=True,
        )
        found = generator.generate([model], make_sample((6, 6, 6)))
        assert {len(hypotheses[0]["tokens"]) for hypotheses in found} == {6}
        if accelerated:
            kept = found
    assert_same_hypotheses(kept, found)


@pytest.mark.parametrize(
    "words",
    [
        "--decoder-normalize-before --layernorm-embedding",
        "--decoder-learned-pos --no-scale-embedding --max-target-positions 13",
        "--no-token-positional-embeddings --decoder-ffn mscffn",
        "--adaptive-softmax-cutoff 8,20",
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


def test_a_smaller_projection(parse, build_generator, tiny_words, make_sample):
    setup = parse("--arch", "transformer_ftc", *tiny_words, *TWO_LAYERS.split())
    setup.args.decoder_output_dim = 12
    model = setup.build_model()
    assert model.decoder.project_out_dim is not None
    assert_same_results(build_generator, [model], make_sample(LENGTHS))


def test_alone_and_in_a_batch(build_generator, model, make_sample):
    sample = make_sample(tuple(range(1, 10)))
    generator = build_generator([model], True)
    together = generator.generate([model], sample)
    for tokens, expected in zip(sample["net_input"]["src_tokens"], together):
        tokens = tokens[tokens.ne(1)].unsqueeze(0)
        alone = {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.size(1)])}
        assert_same_hypotheses(generator.generate([model], {"net_input": alone}), [expected])


def test_a_bf16_model_searches_in_bf16(build, build_generator, make_sample):
    model = build(*TWO_LAYERS.split()).to(torch.bfloat16)
    sample = make_sample(LENGTHS)
    found = build_generator([model], True).generate([model], sample)
    expected = build_generator([model], False).generate([model], sample)
    best = [[h[0]["tokens"].tolist() for h in some] for some in (found, expected)]
    assert sum(a == b for a, b in zip(*best)) >= len(LENGTHS) - 1


def test_the_source_is_projected_once_a_sentence(build_generator, model, make_sample):
    rows = []
    layer = model.decoder.layers[0]
    hooks = [
        projection.register_forward_hook(lambda _, args, out: rows.append(out.shape[:-1]))
        for projection in (layer.encoder_attn.k_proj, layer.encoder_attn.v_proj)
    ]
    try:
        build_generator([model], True).generate([model], make_sample(LENGTHS))
    finally:
        for hook in hooks:
            hook.remove()
    assert rows == [(max(LENGTHS), len(LENGTHS))] * 2


def test_a_step_costs_one_token_a_hypothesis(build_generator, model, make_sample):
    rows = []
    hook = model.decoder.layers[0].self_attn.k_proj.register_forward_hook(
        lambda _, args, out: rows.append(out.size(0))
    )
    try:
        generator = build_generator([model], True, min_len=6, max_len_b=6)
        generator.generate([model], make_sample(LENGTHS))
    finally:
        hook.remove()
    assert rows == [len(LENGTHS)] + [5 * len(LENGTHS)] * 6


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


def test_fairseq_generate_says_the_same(
    toy_data, run_train, run_generate, tiny_words, tmp_path, monkeypatch
):
    import fairseq_plugins.search.torch_backend as generation

    run_train(
        *(toy_data.bin, "--arch", "transformer_ftc", *tiny_words, "--encoder-blocks", "1,1"),
        *"--optimizer adam --lr 0.01 --max-tokens 400 --max-update 20 --seed 1".split(),
        *("--criterion", "cross_entropy", "--no-progress-bar", "--save-dir", tmp_path),
    )
    command = [toy_data.bin, "--path", tmp_path / "checkpoint_last.pt", "--nbest", "3", "--cpu"]
    used = []
    monkeypatch.setattr(BeamEnsemble, "__init__", _noting(BeamEnsemble.__init__, used))
    fast = run_generate(*command).output
    assert used
    used.clear()
    with monkeypatch.context() as patch:
        patch.setattr(generation, "accelerate", lambda generator: generator)
        plain = run_generate(*command).output
    assert not used
    lines = [re.findall(r"^[HP]-\d+.*$", log, re.MULTILINE) for log in (fast, plain)]
    assert len(lines[0]) >= 2 * 3 * toy_data.sizes["test"]
    assert [_rounded(line) for line in lines[0]] == [_rounded(line) for line in lines[1]]


def _noting(method, calls):
    def noting(self, *args, **kwargs):
        calls.append(args)
        return method(self, *args, **kwargs)

    return noting


def _rounded(line):
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number.group()):.3f}", line)
