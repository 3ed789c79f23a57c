"""Decoding, checkpoints, TorchScript and the hub interface, as fairseq's users meet them."""

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator

from fairseq_plugins.models import EfficientTransformerModel
from tests.batches import assert_close

MODELS = {
    "transformer_ftc": "--encoder-blocks 2,1 --time-window 2 --feature-window 2",
    "fastformer_encoder": "--encoder-blocks 2",
    "mscffn_transformer": "--encoder-blocks 2",
    "fastformer_encoder compressed": "--encoder-blocks 1,1 --time-window 2 --feature-window 2"
    " --decoder-ffn mscffn --encoder-normalize-before --decoder-normalize-before",
    "mscffn_transformer compressed": "--encoder-blocks 1,1,1 --time-window 3 --feature-window 2"
    " --feature-pooling linear --time-pooling max",
}

# where fairseq's attention is scripted or cached it normalises in float32, even in a float64 model
FLOAT32_SOFTMAX = 2e-6


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request, build):
    name = request.param
    return build(*MODELS[name].split(), arch=name.split()[0])


@pytest.fixture(scope="module")
def dictionary(parse):
    return parse("--arch", "transformer").task.target_dictionary


def test_cached_decoding_equals_uncached(model, make_sample):
    net_input = make_sample((5, 1, 7))["net_input"]
    encoder_out = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    previous = net_input["prev_output_tokens"]
    whole, _ = model.decoder(previous, encoder_out)
    state = {}
    for step in range(previous.size(1)):
        cached, _ = model.decoder(previous[:, : step + 1], encoder_out, incremental_state=state)
        real = previous[:, step].ne(1)
        assert_close(cached[real, -1], whole[real, step], f"step {step}", FLOAT32_SOFTMAX)


@pytest.mark.parametrize(
    "model", ["transformer_ftc", "mscffn_transformer compressed"], indirect=True
)
def test_scripted_equals_eager(model, dictionary, make_sample):
    """The search, and the model in it."""
    generator = SequenceGenerator([model], dictionary, beam_size=3, max_len_b=8)
    scripted = torch.jit.script(generator)
    sample = make_sample((5, 1, 7))
    net_input = {key: sample["net_input"][key] for key in ("src_tokens", "src_lengths")}
    expected = generator.forward({"net_input": net_input})
    found = scripted.forward({"net_input": net_input})
    for some, others in zip(found, expected, strict=True):
        for a, b in zip(some, others, strict=True):
            assert a["tokens"].tolist() == b["tokens"].tolist()
            assert abs(float(a["score"]) - float(b["score"])) < 1e-6
    for lengths in ((5, 1, 7), (4, 4), (1,), (60, 3)):  # with padding, without, short, long
        net_input = make_sample(lengths)["net_input"]
        found, expected = (m(**net_input)[0] for m in (scripted.model.models[0], model))
        assert_close(found, expected, str(lengths), FLOAT32_SOFTMAX)


def test_checkpoint_gives_the_same_output(toy_data, run_train, tiny_words, make_sample, tmp_path):
    """Trained, written and read back by fairseq; then by `from_pretrained`."""
    optimization = "--optimizer adam --lr 0.003 --max-tokens 400 --max-update 3 --seed 1".split()
    optimization += ["--criterion", "cross_entropy", "--no-progress-bar"]
    words = ["--arch", "mscffn_transformer", *MODELS["mscffn_transformer compressed"].split()]
    run_train(toy_data.bin, *words, *tiny_words, *optimization, "--save-dir", tmp_path)
    path = tmp_path / "checkpoint_last.pt"
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    again, _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    net_input = make_sample((5, 1, 7))["net_input"]
    expected = models[0].eval()(**net_input)[0]
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]
    assert set(state) == set(models[0].state_dict())
    for key, tensor in models[0].state_dict().items():
        if not key.endswith("_float_tensor"):  # fairseq never fills it: only its type counts
            assert torch.equal(tensor, state[key]), key
    assert torch.equal(again[0].eval()(**net_input)[0], expected)
    hub = EfficientTransformerModel.from_pretrained(
        str(tmp_path), "checkpoint_last.pt", str(toy_data.bin)
    )
    assert torch.equal(hub.models[0](**net_input)[0], expected)
    sentence = (toy_data.raw / "test.src").read_text().splitlines()[0]
    assert isinstance(hub.translate(sentence, beam=2), str)
