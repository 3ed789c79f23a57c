"""Each subword of a source that the dictionary lacks has a number of its own in the search."""

import math

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator

from fairseq_plugins.search.text import write
from fairseq_plugins.search.torch_backend.copied import find_copied, number_copied
from fairseq_plugins.search.torch_backend.unknown import (
    NUMBERS,
    UnknownSubwords,
    number_unknown,
)
from tests.reference.copy_attention import divide_unknown, go_on
from tests.search.torch_backend.conftest import assert_same_hypotheses

COPY = "--copy-attention --encoder-blocks 1,1 --decoder-layers 2".split()
# places of unknown subwords in each sentence, and which they are
UNKNOWN = [{1: "Łó", 4: "dź", 5: "Łó"}, {}, {0: "北京"}, {2: "ź", 3: "Łó", 6: "Łó", 7: "Łó"}]
LENGTHS = (7, 5, 4, 9)


@pytest.fixture(scope="module")
def model(build_joined):
    return copies_much(build_joined(*COPY, "--copy-next"))


def copies_much(model):
    with torch.no_grad():
        model.decoder.copying.gate.bias.fill_(-3.0)
    return model


def make_batch(make_sample, dictionary, side="left"):
    """A batch with numbers, and the unknown subwords of each sentence."""
    sample = make_sample(LENGTHS, side=side)
    tokens, pieces = sample["net_input"]["src_tokens"], []
    for row, unknown in zip(tokens, UNKNOWN):
        real = row.ne(dictionary.pad()).nonzero().flatten()
        row[real[list(unknown)]] = dictionary.unk()
        pieces.append([unknown.get(n, dictionary[row[at]]) for n, at in enumerate(real[:-1])])
    return sample, number_unknown(sample, dictionary, pieces)


class SlowEnsemble(EnsembleModel):
    """Probabilities by the loops of the reference, from the whole hypothesis in each step."""

    def __init__(self, models, numbers):
        super().__init__(models)
        self.numbers = numbers

    def forward_encoder(self, net_input):
        return [{"words": [net_input["src_tokens"]], "numbers": [self.numbers]}]

    def reorder_encoder_out(self, encoder_outs, new_order):
        return [{k: [v[0].index_select(0, new_order)] for k, v in encoder_outs[0].items()}]

    def reorder_incremental_state(self, incremental_states, new_order):
        pass

    @torch.no_grad()
    def forward_decoder(self, tokens, encoder_outs, incremental_states, temperature=1.0):
        words, numbers = encoder_outs[0]["words"][0], encoder_outs[0]["numbers"][0]
        vocabulary = len(self.models[0].decoder.dictionary)
        known = tokens.masked_fill(tokens >= vocabulary, 3)
        rows = []
        for row, previous in enumerate(tokens[:, -1].tolist()):
            source = numbers[row].tolist()
            mixed, attentions = [], []
            for model in self.models:
                found = self.one(model, words[row : row + 1], known[row], source, previous)
                mixed.append(found[0])
                attentions += [found[1]] if found[1] else []
            mean = [sum(p) / len(p) for p in zip(*mixed)]
            attention = [sum(a) / len(a) for a in zip(*attentions)]
            divided = divide_unknown(mean, attention, source, 3)
            rows.append(divided + [0.0] * (1 + int(self.numbers.max()) - len(divided)))
        return torch.tensor([[math.log(p) if p else -math.inf for p in row] for row in rows]), None

    def one(self, model, words, known, source, previous):
        """The probabilities of one model, and the attention that copies, if it copies."""
        decoder, copying = model.decoder, getattr(model.decoder, "copying", None)
        encoded = model.encoder(words, words.ne(1).sum(dim=1))
        x, extra = decoder.extract_features_scriptable(known[None], encoded, None, False)
        generated = decoder.output_layer(x)[0, -1].softmax(dim=0).tolist()
        if copying is None:
            return generated, None
        state = torch.cat([x[0, -1], extra["inner_states"][0][-1, 0]])
        attention = extra["attn"][0][0, -1]
        if copying.next is not None:
            attention = go_on(attention, source, previous, copying.next(state).squeeze())
        attention, gate = attention.tolist(), float(copying.gate(state).sigmoid())
        mixed = [gate * p for p in generated]
        for weight, word in zip(attention, words[0].tolist()):
            mixed[word] += (1 - gate) * weight
        return mixed, attention


def search(generator, models, sample, **options):
    torch.manual_seed(1)
    return generator.generate(models, sample, **options)


@pytest.mark.parametrize(
    "side, options", [("left", {}), ("right", {"no_repeat_ngram_size": 2})], ids=str
)
@pytest.mark.parametrize("more", ["--copy-next", "", "others"])
def test_it_equals_the_slow_reference(
    build_joined, build_generator, make_sample, model, side, options, more
):
    models = [model]
    if more == "others":  # of which one does not copy
        models.append(build_joined("--encoder-blocks", "1,1", seed=2))
        models.append(copies_much(build_joined(*COPY)))
    elif not more:
        models = [copies_much(build_joined(*COPY))]
    dictionary = model.decoder.dictionary
    sample, _ = make_batch(make_sample, dictionary, side)
    options = {"beam_size": 3, "min_len": 6, "max_len_b": 7, **options}
    found = search(build_generator(models, True, **options), models, sample)
    slow = SequenceGenerator(models, dictionary, **options)
    slow.model = SlowEnsemble(models, sample[NUMBERS])
    slow.vocab_size += 2  # of the sentence with the most
    assert_same_hypotheses(found, search(slow, models, sample))
    written = [{t for h in some for t in h["tokens"].tolist()} for some in found]
    assert len({t for tokens in written for t in tokens if t >= len(dictionary)}) > 1
    assert 3 not in written[0] | written[2] | written[3]


def test_unknown_subwords_that_are_not_read_share_what_unk_has():
    """Attention may underflow; <unk> is still impossible where the source has any of them."""
    log_probs, numbers = torch.full((2, 1, 4), 0.25).log(), torch.tensor([[4, 5], [2, 2]])
    found = UnknownSubwords(numbers, Dictionary()).divide(log_probs, torch.zeros(2, 1, 2), None)
    expected = torch.tensor([[0.25, 0.25, 0.25, 0, 0.125, 0.125], [0.25] * 4 + [0, 0]])
    torch.testing.assert_close(found.exp().squeeze(1), expected)


def test_characters_of_what_is_written(build_generator, make_sample, model):
    dictionary = model.decoder.dictionary
    sample, lacking = make_batch(make_sample, dictionary)
    assert lacking == [["Łó", "dź"], [], ["北京"], ["ź", "Łó"]]
    source = sample[NUMBERS][0][sample[NUMBERS][0].ne(1)]
    text = write(source.tolist(), dictionary.symbols, lacking[0]).split(" ")
    assert {n: text[n] for n in UNKNOWN[0]} == UNKNOWN[0]
    # a batch without any is as it was
    plain = make_sample(LENGTHS)
    assert number_unknown(plain, dictionary, [[]] * 4) == [[]] * 4 and NUMBERS not in plain


def test_prefixes_with_unknown_subwords(build_generator, make_sample, model):
    """One of the source, and one that it lacks, whose score is that of <unk> as a whole."""
    dictionary = model.decoder.dictionary
    sample, _ = make_batch(make_sample, dictionary)
    generator = build_generator([model], True, max_len_b=4)
    first = len(dictionary)
    scores = []
    for token in (first, first + 1, 3):
        prefix = torch.tensor([[token], [3], [1], [7]])
        found = search(generator, [model], sample, prefix_tokens=prefix)
        assert {h["tokens"][0].item() for h in found[0]} == {token}
        scores.append(float(found[0][0]["positional_scores"][0].exp()))
    assert scores[2] == pytest.approx(scores[0] + scores[1], rel=1e-5)


def test_a_written_begin_moves_no_characters():
    dictionary = Dictionary()
    word, unknown = dictionary.add_symbol("word"), len(dictionary) + 1
    begin, end = dictionary.bos(), dictionary.eos()
    tokens = torch.tensor([begin, word, begin, unknown, begin, unknown - 1, end])
    assert write(tokens, dictionary.symbols, ["x", "y"]) == "word y x"
    assert write(tokens, dictionary.symbols, ["x", "y"], ["<s>", "z"]) == "<s> z y x"


def test_what_other_searches_write(build_generator, make_sample, model):
    """<unk> is the unknown subword with the most attention; numbers tell where they stand."""
    dictionary = model.decoder.dictionary
    sample, _ = make_batch(make_sample, dictionary)
    numbers = sample[NUMBERS]
    for tokens in ([[17, 3, 7, 2]] * 4, numbers[:, -5:].tolist()):
        hypotheses = [torch.tensor(line) for line in tokens]
        copied = find_copied(model, sample["net_input"], hypotheses, numbers)
        named = number_copied([model], sample, hypotheses, range(4))
        for source, line, positions, new in zip(numbers.tolist(), hypotheses, copied, named):
            source = [number for number in source if number != 1]
            unknown = [number for number in source if number >= len(dictionary)]
            for token, position, number in zip(line.tolist(), positions, new.tolist()):
                assert position is None or source[position] == token
                assert number in unknown if unknown and token == 3 else number == token
                assert position is not None or token < len(dictionary)
