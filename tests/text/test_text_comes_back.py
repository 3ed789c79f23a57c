"""Text becomes subwords and comes back unchanged, in many languages and scripts."""

import json
import re
import unicodedata
from collections import defaultdict
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from fairseq_plugins.data.prepared_folder import RECORD, Prepared
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import translation
from fairseq_plugins.evaluate.translation import Translations
from fairseq_plugins.text.languages import is_unspaced
from tests import tiny_runs


def sentences():
    """The sentences of `languages.tsv` by language."""
    found = defaultdict(list)
    for row in Path(__file__).with_name("languages.tsv").read_text("utf-8").splitlines():
        if not row.startswith("#"):
            language, text = row.split("\t")
            code = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
            text = code.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
            found[language].append(text)
    return found


LANGUAGES = sentences()
LINES = [line for lines in LANGUAGES.values() for line in lines]


def composed(line):
    return " ".join(unicodedata.normalize("NFC", line).split())


def decomposed(line):
    return unicodedata.normalize("NFD", line)


@pytest.fixture(scope="module")
def prepare(tmp_path_factory):
    """prepare(options...) -> a folder with all sentences, as target and decomposed as source."""
    text = dict.fromkeys(("train", "valid"), (list(map(decomposed, LINES)), LINES))
    how = {"languages": ("en", "mul")}
    return lambda *words: tiny_runs.prepare(
        tmp_path_factory.mktemp("languages"), text, "--max-ratio", 1000, *words, **how
    )


@pytest.fixture(scope="module")
def default(prepare):
    return prepare()


def scores(folder, language):
    """The scores of a model that has learnt the references of one language by heart."""
    test = Translations(folder, "valid", "mul")
    raw = (folder / "text" / "raw" / "valid.mul").read_text("utf-8").split("\n")[:-1]
    lines = list(map(Prepared(folder).processor("en", "mul").encode_target, raw))
    places = [LINES.index(line) for line in LANGUAGES[language]]
    test.references = {n: [side[i] for i in places] for n, side in test.references.items()}
    test.language = language
    text = test.text([lines[place] for place in places])
    return {name: score["score"] for name, score in test.score(text).items()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_default_gives_text_back(default, language):
    processor = Prepared(default).processor("en", "mul")
    for line in LANGUAGES[language]:
        assert processor.decode(processor.encode_target(line)) == composed(line)
        for form in (decomposed, composed):
            assert processor.encode(form(line)) == processor.encode(line)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_model_that_writes_the_references_scores_100(default, language, monkeypatch):
    if language in ("ja", "ko"):  # their tokenisers need not be installed
        metric = BLEU(tokenize="char")
        monkeypatch.setattr(translation, "bleu_of", lambda code, lowercase: metric)
    found = scores(default, language)
    assert found["BLEU"] == pytest.approx(100) and found["chrF2"] == pytest.approx(100)


@pytest.mark.parametrize(
    "source, target, words, kind, tokenizer",
    [
        ("en", "hi", [], "sentencepiece", "none"),
        ("zh_CN", "en_US", [], "sentencepiece", "none"),
        ("fr", "en", ["--tokenizer", "moses"], "bpe", "moses"),
        ("fr", "en", ["--subword", "bpe"], "bpe", "moses"),
        ("deu", "en", [], "sentencepiece", "none"),
    ],
)
def test_the_default_depends_on_options_alone(source, target, words, kind, tokenizer, tmp_path):
    text = dict.fromkeys(("train", "valid"), [["Abab ab."] * 9] * 2)
    data = tiny_runs.prepare(tmp_path, text, *words, languages=(source, target))
    settings = Prepared(data).processing
    assert (settings.subword, settings.tokenizer) == (kind, tokenizer)
    assert settings.normalization == "NFC"


@pytest.mark.parametrize("form", [{}, {"normalization": "NFKD"}])
def test_a_folder_of_another_version_is_refused_in_one_line(tmp_path, form):
    settings = {"source_lang": "fr", "target_lang": "en", "tokenizer": "moses", "subword": "bpe"}
    record = {"settings": {**settings, "lowercase": False, **form}}
    (tmp_path / RECORD).write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="normalization.*make this one anew with them$"):
        _ = Prepared(tmp_path).processing


def test_scripts_without_spaces_are_known():
    found = [language for language, lines in LANGUAGES.items() if is_unspaced(lines)]
    assert found == ["bo", "ja", "km", "lo", "my", "th", "zh"]
    assert not is_unspaced(["", "42 %"])
