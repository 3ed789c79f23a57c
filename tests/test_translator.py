"""The command translate with a tiny model on what prepare-translation made."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairseq_plugins import cli
from fairseq_plugins.api import Translator
from fairseq_plugins.cli import evaluate
from fairseq_plugins.cli import translate as translate_command
from fairseq_plugins.compat.checkpoints import WORDS
from fairseq_plugins.data.prepared_folder import RECORD, digests_of_words
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.search.torch_backend import batch_sizes
from tests import tiny_runs
from tests.conftest import OPTIMIZATION, change_task, load, reversed_copy

NUMBERS = "eins zwei drei vier acht neun".split()
ENGLISH = dict(zip(NUMBERS, "one two three four eight nine".split()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Numbers in German and English."""
    generator, text = random.Random(1), {}
    for split, size in (("train", 300), ("valid", 10)):
        lines = [
            [generator.choice(NUMBERS) for _ in range(generator.randint(1, 5))] for _ in range(size)
        ]
        text[split] = [
            [" ".join(map(word, line)).capitalize() + "." for line in lines]
            for word in (str, ENGLISH.get)
        ]
    folder = tmp_path_factory.mktemp("numbers")
    words = "--lowercase --vocab-size 32 --subword bpe".split()
    tiny_runs.prepare(folder, text, *words, name="bpe")
    return folder


@pytest.fixture(scope="module")
def model(folder, run_train, train_args):
    """A folder with a checkpoint that has learnt something; no source longer than 24 subwords."""
    run_train(
        *(folder / "bpe", *train_args, "--save-dir", folder / "model", "--max-update", 60),
        *("--source-lang", "de", "--target-lang", "en", "--no-epoch-checkpoints"),
        *("--max-source-positions", 24, "--max-target-positions", 40, "--lr", 0.01),
    )
    return folder / "model"


@pytest.fixture
def translate(model, converse):
    main, given = translate_command.main, ("--model", model, "--cpu")
    return lambda text, *words: converse(main, text, *given, *words)


SENTENCES = ["Eins.", "Zwei drei.", "Acht neun eins vier.", "Neun!", "Vier & acht acht."]


def test_lines_keep_their_order_and_company_changes_nothing(translate, model, monkeypatch):
    translator = Translator([model], cpu=True)
    alone = [translator.translate([line])[0] + "\n" for line in SENTENCES]
    assert len(set(alone)) > 2, "the model says the same to everything: nothing is tested"
    shuffled = SENTENCES[::-1] + SENTENCES * 3
    expected = "".join(alone[::-1] + alone * 3)
    text = "\n".join(shuffled) + "\n"
    for words in ([], ["--max-tokens", 30], ["--buffer", 3], ["--buffer", 1]):
        out, err = translate(text, *words)
        assert out == expected
        assert err == ""
    for free in (2, 1 << 40):  # bytes of memory
        monkeypatch.setattr(batch_sizes, "free_bytes", lambda device, free=free: free)
        assert translate(text) == (expected, "")


def test_a_line_has_the_limit_of_its_own_length(model, monkeypatch):
    """In a batch with a longer line it may not write more than alone."""
    translator = Translator([model], cpu=True)
    monkeypatch.setattr(translator, "max_length", lambda length: length // 4 + 1)
    alone, cut_off = [], []
    for number, line in enumerate(SENTENCES, 1):
        alone += translator.translate([line])
        cut_off += [number] if translator.cut_off == [1] else []
    assert len(cut_off) > 2, "no limit was reached: nothing is tested"
    assert translator.translate(SENTENCES) == alone
    assert translator.cut_off == cut_off


def test_each_buffer_has_its_own_draws(translate):
    """Also among more words than there are, which means all."""
    text, words = "Eins.\n" * 6, ["--sampling", "--buffer", 1]
    drawn, _ = translate(text, *words)
    assert len(set(drawn.splitlines())) > 1
    assert translate(text, *words, "--sampling-topk", 10**6)[0] == drawn


def test_it_is_what_fairseq_interactive_says(translate, folder, model, run_interactive):
    translator = Translator([model], cpu=True)
    sources = [translator.processor.encode(line) for line in SENTENCES]
    log = run_interactive(
        *(folder / "bpe", "--path", model / "checkpoint_best.pt", "--beam", 5, "--cpu"),
        *("--source-lang", "de", "--target-lang", "en"),
        stdin="".join(line + "\n" for line in sources),
    ).output
    pieces = re.findall(r"^H-\d+\t\S+\t(.*)$", log, re.MULTILINE)
    assert len(pieces) == len(SENTENCES)
    expected = [translator.processor.decode(line) for line in pieces]
    assert translate("\n".join(SENTENCES))[0].split("\n")[:-1] == expected
    assert "@@" not in "".join(expected) and not any("&amp;" in line for line in expected)


def test_each_part_of_a_line_has_its_own_draws(model):
    """Also in batches of its own."""
    translator = Translator([model], cpu=True, sampling=True, nbest=5, max_tokens=1)
    (alone,) = translator.hypotheses(["Eins zwei."])
    translator.max_source = len(translator.processor.encode("Eins zwei.").split())
    (in_parts,) = translator.hypotheses(["Eins zwei. Eins zwei."], split=True)
    rest = [both.tokens[len(one.tokens) :] for one, both in zip(alone, in_parts)]
    assert [one.tokens + more for one, more in zip(alone, rest)] == [h.tokens for h in in_parts]
    assert [one.tokens for one in alone] != rest


def test_a_page_shows_the_attention_of_each_translation(translate, model, tmp_path):
    """T + 1 rows of S + 1 cells; none of empty lines and of those translated in parts."""
    text = "Zwei <b>.\n\nVier drei acht.\n" + "eins " * 60 + "\n"
    plain, _ = translate(text)
    shown, _ = translate(text, "--html", tmp_path / "page.html", "--buffer", 2)
    assert shown == plain
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<b>." not in page and "Zwei &lt;b&gt;." in page
    sections = page.split("<h2>")[1:]
    assert [each.split("<")[0] for each in sections] == ["1", "2", "3", "4"]
    assert ["There is no table" in each for each in sections] == [False, True, False, True]
    translator = Translator([model, model], cpu=True)
    (best,), (long,) = translator.hypotheses(
        ["Vier drei acht.", "eins " * 60], split=True, aligned=True
    )
    rows = [re.findall(r'title="([\d.]+)"', row) for row in sections[2].split("<tr>")[2:]]
    source = translator.processor.encode("Vier drei acht.").split()
    (weights,) = best.attention
    assert weights.shape == (len(best.tokens) + 1, len(source) + 1)
    assert weights.sum(axis=1) == pytest.approx(1)
    assert best.alignment == tuple(row[:-1].argmax() for row in weights[:-1])
    first, second = (each.shape[1] - 1 for each in long.attention[:2])
    begin = len(long.attention[0]) - 1
    for at, row in zip(long.alignment[begin:], long.attention[1][:-1]):
        assert at == first + row[:second].argmax()
    assert len(long.alignment) == len(long.tokens)
    assert [[float(cell) for cell in row] for row in rows] == pytest.approx(weights, abs=0.006)
    command = ["translate", "--model", "tatoeba-de-en", "--input", str(tmp_path / "in")]
    (tmp_path / "in").write_text("Guten Morgen!\n", "utf-8")
    assert cli.main([*command, "--html", str(tmp_path / "exported.html")]) == 0
    assert "Good morning." in (tmp_path / "exported.html").read_text("utf-8")


def test_a_translation_that_ends_at_the_limit_is_whole(model, monkeypatch):
    translator = Translator([model], cpu=True)

    def lengths():
        """With the end symbol where there is one, and whether there is."""
        found = [output for (output,) in translator.candidates(SENTENCES, 1)]
        return [(len(o.pieces.split()) + o.complete, o.complete) for o in found]

    longest = min(length for length, complete in lengths() if complete)
    monkeypatch.setattr(translator, "max_length", lambda length: longest)
    assert (longest, True) in lengths() and (longest, False) in lengths()


def test_several_models_and_the_reverse_direction(translate, folder, model, run_train, train_args):
    once = translate("Eins zwei.\n")[0]
    assert translate("Eins zwei.\n", "--model", model, model / "checkpoint_last.pt")[0] == once
    run_train(
        *(folder / "bpe", *train_args, "--save-dir", folder / "reverse", "--max-update", 1),
        *("--source-lang", "en", "--target-lang", "de"),
    )
    translator = Translator([folder / "reverse"], cpu=True)
    tokens = translator.processor.subwords.join(translator.processor.encode("It's one."))
    assert tokens == "it &apos;s one ."  # as English is tokenised, not German


def test_a_convolutional_model_has_the_beam_that_is_asked(folder, run_train):
    """fairseq groups the rows of its attention by the beam."""
    small = "--encoder-embed-dim 16 --decoder-embed-dim 16 --decoder-out-embed-dim 16".split()
    small += ["--encoder-layers", "[(16, 3)]", "--decoder-layers", "[(16, 3)]"]
    run_train(
        *(folder / "bpe", *OPTIMIZATION, "--arch", "fconv", *small, "--max-update", 40),
        *("--source-lang", "de", "--target-lang", "en", "--save-dir", folder / "fconv"),
        *("--no-epoch-checkpoints", "--lr", 0.01),
    )
    for beam in (1, 3):
        translator = Translator([folder / "fconv"], cpu=True, beam=beam)
        alone = [translator.translate([line])[0] for line in SENTENCES]
        assert translator.translate(SENTENCES) == alone and len(set(alone)) > 1
    with pytest.raises(ConfigurationError, match="--int8 is for Transformers, .* FConvEncoder"):
        Translator([folder / "fconv"], cpu=True, int8=True)


def test_a_model_that_writes_all_words_at_once_is_told(folder, model, run_train, train_args):
    run_train(
        *(folder / "bpe", *train_args, "--save-dir", folder / "nat", "--max-update", 1),
        *("--arch", "nonautoregressive_transformer", "--task", "translation_lev"),
        *("--criterion", "nat_loss", "--noise", "full_mask"),
        *("--source-lang", "de", "--target-lang", "en", "--apply-bert-init"),
    )
    for models in ([folder / "nat"], [model, folder / "nat"]):
        with pytest.raises(ConfigurationError, match="nat/.* word by word .NATrans.*interactive"):
            Translator(models, cpu=True)


@pytest.mark.parametrize(
    "given, told",
    [
        ({"models": []}, "no model: give a checkpoint"),
        ({"models": "here"}, "has neither checkpoint_best.pt nor"),
        ({"models": "absent"}, "absent does not exist"),
        ({"data": "here"}, "no dictionaries"),
        ({"data": 5}, "^--data 5 is of type int: give the prepared"),
        ({"data": "a:b"}, "--data .*a:b: fairseq cannot read paths with"),
        ({"fp16": True}, "--fp16 needs a GPU"),
        ({"max_tokens": -1}, "--max-tokens -1: must be at least 1"),
        ({"beam": 0}, "^--beam 0: must be from 1 to 1024$"),
    ],
    ids=str,
)
def test_what_cannot_be_loaded(model, tmp_path, monkeypatch, given, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    with pytest.raises(ConfigurationError, match=told):
        Translator(**{"models": model, "cpu": True, **given})


def test_a_least_length_above_the_limit_of_a_line(translate):
    with pytest.raises(ConfigurationError, match="--min-len 9: line 2 has .* at most 5: give"):
        translate("\nEins.\n", "--min-len", 9, "--max-len", 5, "--buffer", 1)


def test_another_subword_model_is_refused(translate, folder, tmp_path):
    """By the folder's record, and by the checkpoint where the record says nothing of files."""
    other = shutil.copytree(str(folder / "bpe"), tmp_path / "other")
    codes = (other / "bpe.codes").read_text(encoding="utf-8").splitlines(keepends=True)
    (other / "bpe.codes").write_text("".join(codes[:-3]), encoding="utf-8")
    record = json.loads((other / RECORD).read_text(encoding="utf-8"))
    for digests in (record["sha256"], {}):
        (other / RECORD).write_text(json.dumps({**record, "sha256": digests}), encoding="utf-8")
        with pytest.raises(ConfigurationError, match="bpe.codes"):
            translate("", "--data", other)


def test_words_are_compared_wherever_the_folder_is(translate, folder, model, tmp_path, monkeypatch):
    """A relative path means another folder, or none, elsewhere; checkpoints know their words."""
    words = load(model)[WORDS]
    assert len(words) == 3 and words == digests_of_words(folder / "bpe")
    change_task(model / "checkpoint_last.pt", tmp_path / "relative.pt", data="data")
    other = tmp_path / "elsewhere" / "data"
    shutil.copytree(str(folder / "bpe"), str(other))
    lines = (other / "dict.en.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (other / "dict.en.txt").write_text("".join(lines[::-1]), encoding="utf-8")
    for place, words in ((other.parent, []), (tmp_path, ["--data", other])):
        monkeypatch.chdir(place)
        with pytest.raises(ConfigurationError, match="not trained with the dictionaries in .*data"):
            translate("", "--model", tmp_path / "relative.pt", *words)
    right = translate("Eins.\n", "--model", tmp_path / "relative.pt", "--data", folder / "bpe")
    assert right == translate("Eins.\n", "--model", model / "checkpoint_last.pt")
    same = shutil.copytree(folder / "bpe", tmp_path / "same")
    counts = "".join(line.rpartition(" ")[0] + " 7\n" for line in lines)  # of other text
    (same / "dict.en.txt").write_text(counts, encoding="utf-8")
    assert translate("Eins.\n", "--data", same) == right
    with pytest.raises(ConfigurationError, match="not trained with the dictionaries in"):
        evaluate.main([str(other), str(model), "--split", "valid", "--cpu"])


def test_programs_of_fairseq_warn_of_other_words(
    folder, model, tmp_path, run_generate, run_interactive, run_validate, run_train, train_args
):
    other = tmp_path / "other"
    shutil.copytree(str(folder / "bpe"), str(other))
    lines = (other / "dict.en.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (other / "dict.en.txt").write_text("".join(lines[::-1]), encoding="utf-8")
    checkpoint = model / "checkpoint_last.pt"

    def warnings(run, data, *words):
        said = run(data, *words, "--source-lang", "de", "--target-lang", "en").output
        return [line for line in said.splitlines() if "was trained with other words" in line]

    tune = ["--finetune-from-model", checkpoint, "--save-dir", tmp_path / "tuned"]
    tune += ["--max-source-positions", 24, "--max-target-positions", 40, "--max-update", 1]
    for run, words in (
        (run_generate, ["--path", checkpoint, "--gen-subset", "valid", "--cpu"]),
        (run_interactive, ["--path", checkpoint, "--cpu"]),
        (run_validate, ["--path", checkpoint, "--batch-size", 8, "--cpu"]),
        (run_train, [*train_args, *tune, "--no-save"]),
    ):
        assert warnings(run, folder / "bpe", *words) == []
        (line,) = warnings(run, other, *words)
        assert f"{checkpoint} was trained" in line and "WARNING" in line
        assert f"in dict.en.txt of {other}, so its output makes no sense" in line


def with_options(model, folder, **options):
    """A copy of a model whose task has other options."""
    folder.mkdir()
    change_task(model / "checkpoint_last.pt", folder / "checkpoint_last.pt", **options)
    return folder


def test_a_direction_left_to_the_data_is_that_of_the_training(translate, folder, model, tmp_path):
    """fairseq stores no languages without --source-lang and --target-lang."""
    expected = translate("Eins zwei.\n")
    other_way = reversed_copy(folder / "bpe", tmp_path / "data")
    untold = with_options(model, tmp_path / "untold", source_lang=None, target_lang=None)
    assert translate("Eins zwei.\n", "--model", untold) == expected
    assert translate("Eins zwei.\n", "--model", untold, "--data", other_way) == expected
    reverse = {"source_lang": None, "target_lang": None, "data": str(other_way)}
    reverse = with_options(model, tmp_path / "reverse", **reverse)
    for models in ([model, reverse], [untold, reverse]):
        with pytest.raises(
            ConfigurationError, match="two directions cannot form an ensemble: .* en-de"
        ):
            Translator(models, cpu=True)


@pytest.mark.parametrize("trained_on", ["both directions", "nothing"])
def test_the_data_tell_the_direction_of_a_model_that_has_none(trained_on, folder, model, tmp_path):
    other_way = reversed_copy(folder / "bpe", tmp_path / "data")
    both = tmp_path / "both"
    if trained_on == "both directions":
        shutil.copytree(str(folder / "bpe"), str(both))
        settings = json.loads((both / RECORD).read_text("utf-8"))
        settings["settings"]["bidirectional"] = True
        (both / RECORD).write_text(json.dumps(settings), encoding="utf-8")
    options = {"source_lang": None, "target_lang": None, "data": str(both)}
    untold = with_options(model, tmp_path / "untold", **options)
    for data, languages in ((other_way, ("en", "de")), (folder / "bpe", ("de", "en"))):
        task = Translator(untold, data, cpu=True).engine.task
        assert (task.cfg.source_lang, task.cfg.target_lang) == languages
    # the other models of an ensemble may tell it
    task = Translator([untold, model], other_way, cpu=True).engine.task
    assert (task.cfg.source_lang, task.cfg.target_lang) == ("de", "en")


def test_threads_share_a_translator(model, monkeypatch):
    """The limit of one call's batch is not that of another's."""
    translator = Translator(model, cpu=True)
    monkeypatch.setattr(translator, "max_length", lambda length: 3 * length)
    inference, limits, forked = translator.engine.task.inference_step, [], []

    def slow(generator, models, sample, **words):
        if not forked:  # while this thread translates: the process has no such thread
            forked.append(os.fork())
            if not forked[0]:
                signal.alarm(240)
                os._exit(translator.translate(lines[:1]) == [""])
        before = generator.max_len_b
        time.sleep(0.05)
        limits.append((before, generator.max_len_b, 3 * sample["net_input"]["src_tokens"].size(1)))
        return inference(generator, models, sample, **words)

    monkeypatch.setattr(translator.engine.task, "inference_step", slow)
    lines = ["Eins.", "Acht neun eins vier acht neun.", "Zwei drei vier."] * 2
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda line: translator.translate([line]), lines))
    assert len(limits) == 6 and all(len(set(limit)) == 1 for limit in limits)
    assert together == [translator.translate([line]) for line in lines]
    assert os.waitpid(forked[0], 0)[1] == 0


def test_a_data_folder_that_moved_is_named(folder, model, tmp_path):
    moved = folder / "moved"
    (folder / "bpe").rename(moved)
    try:
        with pytest.raises(ConfigurationError, match="bpe, which is missing: .* with --data"):
            Translator([model], cpu=True)
        assert Translator([model], data=moved, cpu=True).translate([""]) == [""]
        (moved / "preparation.json").rename(tmp_path / "kept.json")
        with pytest.raises(ConfigurationError, match="preparation.json cannot be used"):
            Translator([model], data=moved, cpu=True)
        (tmp_path / "kept.json").rename(moved / "preparation.json")
        (moved / "bpe.codes").rename(tmp_path / "bpe.codes")
        with pytest.raises(ConfigurationError, match="bpe.codes is missing"):
            Translator([model], data=moved, cpu=True)
        (tmp_path / "bpe.codes").rename(moved / "bpe.codes")
    finally:
        moved.rename(folder / "bpe")


def test_a_fork_of_a_process_with_models_translates_or_says_to_spawn(model):
    """As Linux starts processes until Python 3.13, and gunicorn with --preload."""
    code = """
import multiprocessing, sys
import torch
from fairseq_plugins import Translator
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.search.torch_backend import batch_sizes

def compute():
    return torch.ones(1 << 22).exp().sum()

def translate(number):
    compute()
    try:
        return (models[number] if number < 3 else Translator(sys.argv[1])).translate(["eins zwei"])
    except ConfigurationError as error:
        return str(error)

torch.set_num_threads(2)
compute()  # the second thread exists in this process only
models = [Translator(sys.argv[1]), *(Translator("tatoeba-de-en", threads=n) for n in (1, 2))]
expected = [each.translate(["eins zwei"]) for each in models]
with multiprocessing.get_context("fork").Pool(2) as pool:
    found = pool.map_async(translate, range(4), chunksize=1).get(timeout=1200)
assert found[:2] == expected[:2] and found[3] == expected[0], found
assert found[2].startswith("a model that was loaded with threads=2 cannot run in a forked"), found
assert 'multiprocessing.get_context("spawn")' in found[2]
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(model)], capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr


def test_translations_have_their_terms(model, translate, tmp_path):
    terms = tmp_path / "terms.tsv"
    terms.write_text("vier\tnine one nine\nNeun\tthree\n")
    plain, hard = (Translator(model, cpu=True, terms=each) for each in (None, terms))
    for line, before, after in zip(
        SENTENCES, plain.translate(SENTENCES), hard.translate(SENTENCES)
    ):
        wanted = [
            term for word, term in (("vier", "nine one nine"), ("Neun", "three")) if word in line
        ]
        assert all(term in after for term in wanted) if wanted else after == before
    assert sum("nine one nine" in text for text in plain.translate(SENTENCES)) == 0
    # with more hypotheses, all that have the terms may have ended before the limit
    more = {"Eins": "two nine", "Zwei": "nine four one", "acht": "one three two", "neun": "four"}
    terms.write_text("".join(f"{word}\t{term}\n" for word, term in more.items()))
    for beam in (2, 5):
        found = Translator(model, cpu=True, terms=terms, beam=beam).translate(SENTENCES)
        for line, after in zip(SENTENCES, found):
            assert all(term in after.lower() for word, term in more.items() if word in line)
    terms.write_text("vier\tnine one nine\n")
    # a limit that leaves no room for the term
    out, err = translate("Acht vier.\nZwei.\n", "--terms", terms, "--max-len", 2)
    assert "nine one nine" not in out
    assert "1 translation lacked a target term of --terms: number 1" in err
    for place, options in ((model, {"sampling": True}), ("tatoeba-de-en", {})):
        with pytest.raises(ConfigurationError, match="--terms, or the beam search of"):
            Translator(place, terms=terms, **options)
