"""Protected text: what is a span, and that each of a source stands in its translation once."""

import json
import random
import re

import numpy as np
import pytest

from fairseq_plugins.api import Translator
from fairseq_plugins.cli import export
from fairseq_plugins.cli import translate as translate_command
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.text import protection
from fairseq_plugins.text.protection import SYMBOL, SYMBOLS, Protection, mismatch, repair
from fairseq_plugins.text.subwords import KINDS
from tests import tiny_runs
from tests.conftest import ROOT

PLAIN = Protection()
SPAN, protect, protect_pair = PLAIN.spans[0], PLAIN.protect, PLAIN.protect_pair
restore, missing_spans = PLAIN.restore, PLAIN.missing_spans

TEXTS = {
    "{name}, see <b>https://example.com/p/123</b>, 12,345.60 EUR!": [
        "{name}", "<b>", "https://example.com/p/123", "</b>", "12,345.60 EUR",
    ],
    "Mail a.b+c@mail.example.org. www.x.de/?a=1&b=2.": [
        "a.b+c@mail.example.org", "www.x.de/?a=1&b=2",
    ],
    "%s of %(n)d, %5.2f, ${x} {{y}} {0}": [
        "%s", "%(n)d", "%5.2f", "${x}", "{{y}}", "{0}",
    ],
    "$5 or \u20ac 3.50; 5\u00a0kg, 3 %, 20\u00b0C": [
        "$5", "\u20ac 3.50", "5\u00a0kg", "3 %", "20\u00b0C",
    ],
    "<a href='x y'> &amp; <br/> \U0001f600\U0001f44d\U0001f3fd\U0001f1e9\U0001f1ea": [
        "<a href='x y'>", "&amp;", "<br/>", "\U0001f600", "\U0001f44d\U0001f3fd",
        "\U0001f1e9\U0001f1ea",
    ],
    "5 men, 3 < 4 > 2, A & B, 100%ig, @home {a b}, 1990.": [],
}  # fmt: skip


@pytest.mark.parametrize("text, spans", TEXTS.items(), ids=range(len(TEXTS)))
def test_spans(text, spans):
    assert [match[0] for match in SPAN.finditer(text)] == spans
    protected = protect(text)
    assert len(SYMBOL.findall(protected)) == len(spans) == len(set(SYMBOL.findall(protected)))
    assert restore(protected, text) == (text, ())


def test_each_span_comes_back_once_whatever_a_model_writes():
    draw = random.Random(1)
    spans = [span for of_text in TEXTS.values() for span in of_text]
    for _ in range(300):
        words = draw.choices([*spans, "word", "Wort", SYMBOLS[3], "\u00df"], k=draw.randint(0, 12))
        source = " ".join(words)
        written = " ".join(draw.choices([*SYMBOLS, *protect(source).split(), "word"], k=10))
        restored = restore(written, source)
        assert not SYMBOL.search(restored.text) and not missing_spans(source, restored.text)
        for span in set(words) & set(spans):
            assert restored.text.count(span) >= words.count(span)
        assert len(SPAN.findall(restored.text)) == len(SPAN.findall(source))
        assert restored.repaired or protect(source) != written
        assert restore(protect(source), source).repaired == ()


def test_what_both_sides_have_gets_the_same_symbol():
    source, target = "<b>A</b> 5 kg <b>B</b> x@y.de", "<b>a</b> {x} <b>b</b> 5 kg"
    one, other = protect_pair(source, target)
    assert sorted(SYMBOL.findall(one)) == sorted(SYMBOL.findall(other))
    assert len(SYMBOL.findall(one)) == 5 and one.endswith(" x@y.de") and "{x}" in other
    first, second = SYMBOL.findall(one)[:2]
    assert other.startswith(f"{first}a{second}")
    used = {protect(f"{number} kg") for number in range(200)}
    assert {SYMBOL.sub("", text) for text in used} == {""} and used == set(SYMBOLS)
    assert len(SYMBOL.findall(protect("5 kg " * 40))) == len(SYMBOLS)  # the others stay


def test_spans_that_a_translation_lacks():
    assert missing_spans("<b>a</b> 5 kg <b>", "<b>x 5 kg") == ["<b>", "</b>"]
    assert missing_spans("a", "b") == []


def test_a_hostile_pattern_ends_in_an_error(monkeypatch):
    monkeypatch.setattr(protection, "SECONDS", 0.1)
    for hostile in ("(?:a|a)*[bc]", r"(?:\w{1,9}\w{1,9}){1,30}[!?]"):
        with pytest.raises(ConfigurationError, match="--protect-patterns: one takes more than"):
            Protection([hostile]).protect("a" * 300)


TAG, END, OTHER = SYMBOLS[:3]


@pytest.mark.parametrize(
    "kind, source, written, attended, repaired",
    [
        # a missing symbol stands between the words whose attention is before and after it
        ("sentencepiece", "_a _ T _b", "_x _y", "03", "_x _ T _y"),
        ("sentencepiece", "_a _ T _b", "_x y", "00", "_x y _ T"),
        ("sentencepiece", "_a _ T _b", "_x y", "03", "_ T _x y"),  # never within a word
        ("sentencepiece", "_a T E _b", "_x _y", "03", "_x T E _y"),
        ("bpe", "T@@ a b", "x y", "12", "T@@ x y"),
        # of two the first stays, and another becomes what is missing
        ("bpe", "a T b E", "T x T E", "0013", "T x E"),
        ("bpe", "T b E", "T T T x", "0020", "T E x"),
        ("bpe", "a T b E", "T x T", "100", "T x E"),
        ("sentencepiece", "_a _ T", "_ O _x _ T _y", "001120", "_x _ T _y"),
    ],
)  # fmt: skip
def test_repair_follows_the_alignment(kind, source, written, attended, repaired):
    """`attended`: the position in the source of each subword; T, E and O are symbols."""
    source, written, expected = (
        text.translate(dict(zip(map(ord, "TEO_"), (TAG, END, OTHER, "\u2581")))).split()
        for text in (source, written, repaired)
    )
    attention = np.full((len(written) + 1, len(source) + 1), 0.01)
    attention[range(len(written)), list(map(int, attended))] = 1
    found = repair(source, written, attention, KINDS[kind].is_word_end)
    assert found == expected
    assert (
        mismatch(" ".join(source), " ".join(found))
        == 0
        < mismatch(" ".join(source), " ".join(written))
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return tmp_path_factory.mktemp("protected")


@pytest.mark.parametrize(
    "line, words, message",
    [
        ("Nr[.", "--protect", "Nr[.: unterminated character set at position 5"),
        ("x*", "--protect", "x*: it matches the empty text"),
        ("(x)", "--protect", "(x): it has groups: write (?:...)"),
        ("x", "", " needs --protect: add it"),
        ("x", "--protect --like data", "--protect: --like {0}/plain was prepared without it"),
    ],
)
def test_wrong_patterns_are_told(corpus, tmp_path, line, words, message):
    (tmp_path / "patterns").write_text(f"ok\n\n{line}\n")
    if "--like" in words:
        words = words.replace("data", str(prepare(corpus, "plain")))
    words = ["--protect-patterns", tmp_path / "patterns", *words.split()]
    with pytest.raises(ConfigurationError, match=re.escape(message.format(corpus))):
        prepare(corpus, "wrong", *words)


def prepare(folder, name, *words):
    sides = "Sieh <b>{0} B\u00e4r</b> {0} kg an.", "See <b>{0} x</b> {0} kg."
    text = {
        split: [[side.format(number) for number in range(10, 10 + size)] for side in sides]
        for split, size in (("train", 60), ("valid", 5))
    }
    words = ("--joined-dictionary", "--vocab-size", 60, *words)
    return tiny_runs.prepare(folder, text, *words, name=name)


@pytest.mark.parametrize("words", ["", "--subword bpe", "--subword bpe --tokenizer none"])
def test_symbols_are_subwords_of_their_own(corpus, words):
    data = prepare(corpus, f"data {words}", "--protect", *words.split())
    report = (data / "report.txt").read_text("utf-8")
    assert "Both sides of 60 training pairs have the same protected text" in report
    lines = (data / "dict.de.txt").read_text("utf-8").split("\n")[:-1]
    known = {line.split()[0].rstrip("@") for line in lines}
    assert set(SYMBOLS) <= known
    for languages in (("de", "en"), ("en", "de")):
        processor = Prepared(data).processor(*languages)
        line = "Sieh <b>5 B\u00e4r</b>x<i> 7 kg an https://x.de/y ."
        subwords = processor.encode(line).split()
        assert sum(each.rstrip("@") in SYMBOLS for each in subwords) == 5
        written = processor.restored(processor.encode_target(line, line), line)
        assert written.repaired == () and not missing_spans(line, written.text)
        if not words:
            assert written.text == line
    (corpus / "patterns").write_text("Sieh \\w+\n")
    argv = ["--like", data, "--protect", "--protect-patterns", corpus / "patterns"]
    processor = Prepared(prepare(corpus, f"new {words}", *argv)).processor("de", "en")
    assert len(SYMBOL.findall(processor.encode("Sieh an 5 kg Sieh 1"))) == 3


LINES = ["Sieh <b>5 B\u00e4r</b> an.", "", "Ohne.", "Nimm 3 kg und {name}!"]


@pytest.fixture(scope="module")
def model(corpus, run_train, train_args):
    """A model that has learnt little."""
    (corpus / "terms.tsv").write_text("B\u00e4r\tx\nOhne\tno\n", "utf-8")
    data = prepare(corpus, "data", "--protect", "--terms", corpus / "terms.tsv")
    words = ["--save-dir", corpus / "model", "--max-update", 20, "--no-epoch-checkpoints"]
    run_train(data, *train_args, *words, "--share-all-embeddings")
    return corpus / "model"


@pytest.mark.parametrize("exported", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_translations_have_each_span_once(exported, model, corpus, tmp_path, capsys):
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install '.[test]'")
    lines = LINES
    (tmp_path / "in").write_text("".join(line + "\n" for line in lines), "utf-8")
    place = tmp_path / "export" if exported else model
    if exported:
        assert export.main([str(model), "--out", str(place)]) == 0
    found = Translator(place, cpu=True).hypotheses(lines)
    assert Translator(place, cpu=True).translate(lines) == [each[0].text for each in found]
    (tmp_path / "terms").write_text("B\u00e4r\tpolar bear\nan\tzzz\n", "utf-8")
    with_terms = Translator(place, cpu=True, terms=tmp_path / "terms")
    (text,) = with_terms.translate(lines[:1])
    assert text.count("polar bear") == text.count("zzz") == text.count("<b>") == 1
    assert with_terms.translate(lines[1:]) == [each[0].text for each in found[1:]]
    for line, (best, *_) in zip(lines, found):
        assert all(best.text.count(match[0]) == 1 for match in SPAN.finditer(line))
    capsys.readouterr()
    argv = ["--model", place, "--input", tmp_path / "in", "--json", "--check-spans", "--cpu"]
    assert translate_command.main(list(map(str, argv))) == 0
    out, err = capsys.readouterr()
    told = [json.loads(line)["translations"][0]["repaired"] for line in out.splitlines()]
    assert told == [list(best.repaired) for (best, *_) in found]
    numbers = [str(number) for number, spans in enumerate(told, 1) if spans]
    assert f"and got repaired: number {', '.join(numbers)}\n" in err and "lacked a tag" not in err


def test_ctranslate2_as_on_the_page(model, corpus, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs ctranslate2: pip install it")
    words = [str(model), "--format", "ctranslate2", "--out", str(tmp_path / "export")]
    assert export.main(words) == 0
    page = (ROOT / "examples/deploy/README.md").read_text("utf-8")
    code = re.search(r"```python\n(import numpy.*?)```", page, re.S)[1]
    translator = ctranslate2.Translator(str(tmp_path / "export"))
    for line in LINES[:1] + LINES[2:]:
        names = {"line": line, "translator": translator}
        exec(code.replace('"DATA"', repr(str(corpus / "data"))), names)
        assert all(names["text"].count(match[0]) == 1 for match in SPAN.finditer(line))
        assert np.shape(names["result"].attention[0])[1] == len(names["subwords"])


def test_a_model_without_protected_text_is_only_checked(corpus, tmp_path, capsys):
    (tmp_path / "in").write_text("Nimm {name} {x} mit!\nGuten Tag.\n")
    argv = ["--model", "tatoeba-de-en", "--input", tmp_path / "in", "--check-spans", "--max-len", 2]
    assert translate_command.main(list(map(str, argv))) == 0
    assert "1 translation lacked a tag, URL or other text of their source: number 1" in (
        capsys.readouterr().err
    )
