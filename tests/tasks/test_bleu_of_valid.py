"""BLEU of the validation text in training is that of `evaluate`."""

import functools
import random
import re
import shutil
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_plugins.api import Translator
from fairseq_plugins.cli import prepare_bidirectional
from fairseq_plugins.compat.best_score import SCORED_BY
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import TOKENISED_BLEU, translation
from fairseq_plugins.evaluate.translation import Translations
from fairseq_plugins.search.torch_backend import copied
from fairseq_plugins.tasks.bleu_of_valid import find_scorer, tell
from tests import tiny_runs

WORDS = dict(zip("I you he tea water rice , ?".split(), "我 你 他 茶 水 饭 ， ？".split()))
SIZES = {"train": 60, "valid": 20}


@pytest.fixture(scope="module")
def prepare(tmp_path_factory):
    """prepare(target, options...) -> a prepared folder from English to Chinese or upper case."""

    @functools.cache
    def run(target, *options):
        generator, text = random.Random(1), {}
        for split, size in SIZES.items():
            text[split] = [[], []]
            for number in range(size):
                words = generator.choices([*WORDS], k=generator.randint(4, 9))
                other = "".join(map(WORDS.get, words)) if target == "zh" else " ".join(words)
                unknown = "☃" * (split == "valid" and number == 5)
                empty = split == "valid" and number == 3  # nothing to translate
                text[split][0].append("\u200b" if empty else " ".join(words) + unknown)
                text[split][1].append(other + unknown)
        words = ["--vocab-size", 40, "--max-ratio", 99, "--joined-dictionary", *options]
        folder = tmp_path_factory.mktemp("pair")
        return tiny_runs.prepare(folder, text, *words, languages=("en", target))

    return run


@pytest.fixture(scope="module")
def chinese(prepare):
    return prepare("zh")


def logged_bleu(task, spoil, model=None, sentences=7):
    """What fairseq logs for a validation with these translations, in small batches."""
    task.load_dataset("valid")
    written = {}

    def inference_step(generator, models, sample, prefix_tokens=None):
        found = []
        for number, target in zip(sample["id"].tolist(), sample["target"]):
            tokens = spoil(number, target[target != task.tgt_dict.pad()])
            written[number] = task.tgt_dict.string(tokens)
            found.append([{"tokens": tokens}])
        return found

    task.inference_step, task.tokenizer = inference_step, None
    generator = SimpleNamespace(min_len=1, max_len=200, max_len_a=0, max_len_b=200)
    batches = task.get_batch_iterator(task.dataset("valid"), max_sentences=sentences)
    with metrics.aggregate(new_root=True) as aggregated:
        for sample in batches.next_epoch_itr(shuffle=False):
            bleu = task._inference_with_bleu(generator, sample, model)
            log = {"_bleu_sys_len": bleu.sys_len, "_bleu_ref_len": bleu.ref_len}
            for order in range(4):
                log[f"_bleu_counts_{order}"] = bleu.counts[order]
                log[f"_bleu_totals_{order}"] = bleu.totals[order]
            log.update(loss=1.0, nll_loss=1.0, ntokens=1, nsentences=1, sample_size=1)
            task.reduce_metrics([log], _Criterion())
    return aggregated.get_smoothed_values()["bleu"], [written[n] for n in sorted(written)]


class _Criterion:
    @staticmethod
    def reduce_metrics(logs):
        pass


def task_of(folder, **options):
    cfg = TranslationConfig(data=str(folder), eval_bleu=True, **options)
    cfg.train_subset, cfg.dataset_impl, cfg.required_seq_len_multiple = "train", None, 1
    return TranslationTask.setup_task(cfg)


def spoil(number, tokens):
    """Leave a word out in some sentences, and an unknown one in."""
    tokens = tokens.clone()
    if number % 3 == 1:
        tokens = torch.cat([tokens[:2], tokens[4:]])
    if number % 5 == 0:
        tokens[1] = 3
    return tokens


@pytest.mark.parametrize("tokenised", [False, True])
@pytest.mark.parametrize(
    "target, options",
    [
        ("zh", []),
        ("zh", ["--subword", "bpe"]),
        ("fr", []),
        ("fr", ["--subword", "bpe", "--lowercase"]),
        ("fr", ["--tokenizer", "none"]),
    ],
    ids=str,
)
def test_it_is_that_of_evaluate(prepare, target, options, tokenised):
    folder = prepare(target, *options)
    task = task_of(folder, eval_tokenized_bleu=tokenised, eval_bleu_remove_bpe="@@ ")
    logged, pieces = logged_bleu(task, spoil)
    test = Translations(folder, "valid", target)
    name = TOKENISED_BLEU if tokenised and target != "zh" else "BLEU"
    pieces[3] = ""  # translate leaves a line empty in which nobody sees anything
    expected = test.score(test.text(pieces))[name]["score"]
    assert 5 < expected < 95 and logged == pytest.approx(expected, abs=0.006)


def test_copied_words_have_the_characters_of_the_source(prepare, monkeypatch):
    folder = prepare("fr")
    task = task_of(folder)
    model = Namespace(decoder=Namespace(copying=True, dictionary=task.tgt_dict))
    told, pieces = logged_bleu(task, spoil)

    def find_copied(model, net_input, hypotheses):  # the last subword
        lengths = net_input["src_lengths"].tolist()
        return [[n - 2 for _ in tokens] for n, tokens in zip(lengths, hypotheses)]

    monkeypatch.setattr(copied, "find_copied", find_copied)
    logged, _ = logged_bleu(task, spoil, model)
    test = Translations(folder, "valid", "fr")
    sources = test.source_pieces
    pieces = [
        line.replace("<unk>", source.split()[-1])
        if any(task.src_dict.index(piece) == task.src_dict.unk() for piece in source.split())
        else line
        for line, source in zip(pieces, sources)
    ]
    pieces[3] = ""
    expected = test.score(test.text(pieces))["BLEU"]["score"]
    assert logged == pytest.approx(expected, abs=0.006) and logged > told


def test_a_tokenised_score_of_nothing_right_is_zero(prepare):
    folder = prepare("fr")
    task = task_of(folder, eval_tokenized_bleu=True)
    assert logged_bleu(task, lambda number, tokens: tokens[:2])[0] == 0


@pytest.mark.parametrize("wordy, low, high", [(2, 5, 95), (1, 0, 0)], ids=["half", "all"])
def test_a_batch_without_a_word_counts(chinese, toy_data, wordy, low, high):
    def blank(number, tokens):
        return tokens if number % 2 < wordy - 1 else tokens[-1:]

    logged, pieces = logged_bleu(task_of(chinese), blank, sentences=1)
    test = Translations(chinese, "valid", "zh")
    pieces[3] = ""
    expected = test.score(test.text(pieces))["BLEU"]["score"]
    assert low <= expected <= high and logged == pytest.approx(expected, abs=0.006)
    cfg = {"source_lang": "src", "target_lang": "tgt", "eval_bleu_remove_bpe": "@@ "}
    logged, _ = logged_bleu(task_of(toy_data.bin, **cfg), blank, sentences=1)  # fairseq's own
    assert low <= logged <= high


def test_what_is_another_score_is_told_before_training(chinese, tmp_path):
    given = Namespace(
        eval_bleu=True,
        disable_validation=False,
        valid_subset="valid",
        target_lang=None,
        eval_tokenized_bleu=False,
    )
    assert tell(chinese, given) == []
    given.eval_tokenized_bleu = True
    (line,) = tell(chinese, given)
    assert line.startswith("BLEU of valid is BLEU of evaluate: tokenised BLEU is not defined for")
    assert tell(chinese, Namespace(eval_bleu=False)) == []
    shutil.copytree(chinese, tmp_path / "data")
    (tmp_path / "data/text/raw/valid.zh").unlink()
    prepare_bidirectional.main([str(chinese), str(tmp_path / "both")])
    for folder, reason in (
        ("data", r"raw/valid.zh is missing"),
        ("both", "has both directions"),
        (".", "was not made by prepare-translation"),
    ):
        (line,) = tell(tmp_path / folder, given)
        assert "is fairseq's own (13a on joined subwords), not evaluate's: " in line
        assert reason in line and "\n" not in line


def test_a_missing_tokeniser_is_told_before_training(chinese, tmp_path, monkeypatch):
    def missing(**options):
        raise RuntimeError("Chinese tokenization requires extra dependencies")

    monkeypatch.setattr(translation, "BLEU", missing)
    folder = shutil.copytree(chinese, tmp_path / "data")
    with pytest.raises(ConfigurationError, match=r"the language zh needs .* 'sacrebleu\[zh\]'$"):
        find_scorer(folder, "valid", None, False)


FLAGS = [
    "--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 9, "max_len_a": 0}',
    "--eval-bleu-print-samples", "--best-checkpoint-metric", "bleu",
    "--maximize-best-checkpoint-metric", "--max-tokens-valid", 60, "--max-tokens", 400,
]  # fmt: skip


def test_a_training_that_had_another_score_has_no_best(chinese, train_args, run_train, tmp_path):
    def train(epochs):
        words = [*train_args, *FLAGS, "--save-dir", tmp_path, "--patience", 2]
        return run_train(chinese, *words, "--max-epoch", epochs).output

    def last():
        return torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)

    assert "fairseq's own" not in train(1)
    state = last()
    assert state["extra_state"][SCORED_BY]["BLEU of valid"] == "BLEU of evaluate"
    assert state["extra_state"]["best"] < 90
    best = 99.0  # better than all that follows
    state["extra_state"]["best"] = best
    state["extra_state"]["early_stopping"] = {"best": best, "num_runs": 1}
    torch.save(state, tmp_path / "checkpoint_last.pt")
    said = train(2)
    assert "is forgotten" not in said and "early stop" in said
    assert last()["extra_state"]["best"] == best
    state = last()
    del state["extra_state"][SCORED_BY]  # as of fairseq itself
    state["extra_state"]["early_stopping"] = {"best": best, "num_runs": 1}
    torch.save(state, tmp_path / "checkpoint_last.pt")
    said = train(3)
    assert "BLEU of valid was fairseq's own and is now BLEU of evaluate: the best value" in said
    assert "early stop" not in said and "example hypothesis" in said
    assert last()["extra_state"]["best"] < 90


def test_a_validation_has_the_limit_of_the_data_and_counts_what_reaches_it(
    prepare, train_args, run_train, tmp_path
):
    """Which a larger minimum raises: all translations end there."""
    folder = prepare("fr")
    words = [*train_args, "--save-dir", tmp_path, "--max-update", 1, "--max-tokens-valid", 60]
    said = run_train(
        folder, *words, "--eval-bleu", "--eval-bleu-args", '{"beam": 1, "min_len": 40}'
    ).output
    (cut_off,) = re.findall(r"valid on .*? cut_off (\d+)", said)
    translator = Translator(tmp_path, data=folder, beam=1, min_len=40, cpu=True)
    lines = (folder / "text/raw/valid.en").read_text(encoding="utf-8").splitlines()
    assert max(len(line.split()) for line in translator.pieces(lines)) == 40
    # BLEU counts the line without words, which `translate` leaves out
    assert len(translator.cut_off) <= int(cut_off) <= len(translator.cut_off) + 1
    assert int(cut_off) > 0, "no limit was reached: nothing is tested"


def test_folders_of_other_tools_have_fairseqs_own(toy_data, train_args, run_train, tmp_path):
    words = [*train_args, *FLAGS, "--save-dir", tmp_path, "--max-update", 1]
    said = run_train(toy_data.bin, *words).output
    assert "BLEU of valid is fairseq's own" in said and "not made by prepare-translation" in said
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    assert state["extra_state"][SCORED_BY]["BLEU of valid"] == "fairseq's own"
