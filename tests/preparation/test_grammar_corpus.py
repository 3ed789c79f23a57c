"""The grammar corpus: the same bytes everywhere, no shared sentences, and sound grammar."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_plugins.commands import make_grammar_corpus
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.preparation import grammar_corpus
from fairseq_plugins.preparation.grammar_corpus import grammar, words
from fairseq_plugins.preparation.grammar_corpus.grammar import Clause, Grammar, Pair, Part

SIZES = {"train": 1500, "valid": 150, "test": 150}


@pytest.fixture(scope="module")
def drawn():
    return grammar_corpus.draw(1, SIZES)


@pytest.fixture(scope="module")
def pairs(drawn):
    return [pair for split in drawn.values() for pair in split]


# --- the corpus -----------------------------------------------------------------------------------


def test_the_command_writes_six_files_and_repeats_itself(tmp_path, capsys):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        words = [tmp_path / name, "--pairs", 90, "--held-out", 20, "--seed", seed]
        assert make_grammar_corpus.main([str(word) for word in words]) == 0
    assert "wrote 90 train, 20 valid, 20 test pairs to" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["test.de", "test.en", "train.de", "train.en", "valid.de", "valid.en"]
    for name in names:
        first, again, other = ((tmp_path / folder / name).read_bytes() for folder in "abc")
        assert first == again != other
        assert first.count(b"\n") == (90 if name.startswith("train") else 20)


def test_a_text_of_the_users_is_not_replaced(tmp_path):
    (tmp_path / "valid.en").write_text("mine\n")
    with pytest.raises(ConfigurationError, match=r"valid\.en exists: name another folder"):
        make_grammar_corpus.main([str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["valid.en"]


def test_another_process_draws_the_same(drawn):
    """With other string hashes, which change the order of sets."""
    code = (
        "import sys; sys.argv = ['-m']\n"  # which leaves fairseq out
        "from fairseq_plugins.preparation.grammar_corpus import draw\n"
        f"print(ascii(draw(1, {SIZES})))"
    )
    environment = dict(os.environ, PYTHONHASHSEED="1", PYTHONPATH=str(Path(__file__).parents[2]))
    found = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    assert found.stdout.decode().strip() == ascii(drawn)


def test_choices_use_only_what_every_python_repeats():
    """Random.choice and shuffle may draw differently in another Python; random() may not."""
    text = Path(grammar.__file__).read_text(encoding="utf-8")
    assert re.findall(r"random\.\w+", text) == ["random.Random"]
    assert not re.findall(r"\.(?:shuffle|choices?|sample|randrange)\(", text)


def test_splits_share_no_sentence(drawn, pairs):
    assert {name: len(split) for name, split in drawn.items()} == SIZES
    for side in range(2):
        sides = {name: {pair[side] for pair in split} for name, split in drawn.items()}
        for name, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
            assert not sides[name] & sides[other]
    assert len({pair.german for pair in pairs}) == len(pairs)


def test_held_out_sentences_do_not_depend_on_the_size_of_train(drawn):
    more = grammar_corpus.draw(1, dict(SIZES, train=10))
    assert more["test"] == drawn["test"] and more["valid"] == drawn["valid"]
    assert more["train"] == drawn["train"][:10]


def test_a_sentence_of_another_split_is_left_out(monkeypatch):
    pairs = [
        Pair("Heute ist sie sehr krank.", "She is very ill today."),
        Pair("Sie ist heute sehr krank.", "She is very ill today."),
        Pair("Er ist heute sehr krank.", "He is very ill today."),
        Pair("Heute ist er sehr krank.", "He is very ill today."),
    ]
    stream = iter(pairs)
    monkeypatch.setattr(Grammar, "pair", lambda self: next(stream))
    drawn = grammar_corpus.draw(1, {"test": 1, "train": 2})
    assert drawn == {"test": pairs[:1], "train": pairs[2:]}


def test_more_pairs_than_the_grammar_holds(monkeypatch):
    only = Pair("Das ist immer derselbe Satz.", "This is always the same sentence.")
    monkeypatch.setattr(Grammar, "pair", lambda self: only)
    with pytest.raises(ConfigurationError, match="too few sentences for 2 pairs of train"):
        grammar_corpus.draw(1, {"train": 2})


@pytest.mark.parametrize("option", ["--pairs", "--held-out"])
def test_bad_numbers(tmp_path, option):
    with pytest.raises(ConfigurationError, match=f"{option} 0: must be at least 1"):
        make_grammar_corpus.main([str(tmp_path / "out"), option, "0"])
    assert not (tmp_path / "out").exists()


# --- the sentences --------------------------------------------------------------------------------


def test_sentences_are_sentences(pairs):
    lengths = []
    for pair in pairs:
        for text in pair:
            assert re.fullmatch(r"[A-ZÄÖÜ][A-Za-zÄÖÜäöüß, ]*[.?]", text), text
            assert "  " not in text and " ," not in text
            lengths.append(len(text.split()))
        assert pair.german[-1] == pair.english[-1]
    assert min(lengths) >= 4 and max(lengths) <= 22
    assert 8 <= sum(lengths) / len(lengths) <= 12


PHENOMENA = {
    "verb last": r", (weil|obwohl|wenn|dass|ob) .*\b(hat|ist|haben|muss|wird|bin)\b[.,?]",
    "clause first, then the verb": r"^(Wenn|Weil|Obwohl) [^,]*, (hat|wird|ist|kann|muss) ",
    "separable verb, apart": r"\b(macht|ruft|holt|zieht|wirft) .* (auf|an|ab|weg)[.?]",
    "separable verb, together": r", (dass|ob) .* (aufmacht|anruft|abholt|einlädt|anzieht)[.?]",
    "modal": r"\b(kann|muss|will|soll)\b .*en[.?]$",
    "perfect with sein": r"\b(ist|sind|bin) .*(gefahren|gegangen|gefolgt)\b",
    "perfect with haben": r"\b(hat|haben|habe) .*(gekauft|gelesen|eingeladen)\b",
    "future": r"\b(wird|werden|werde) .*en[.?]",
    "relative clause": r"^(Der|Die|Das) [^,]*, (der|die|das|den) [^,]*, (ist|war|sind|waren) ",
    "object in front": r"^(Den|Dem|Diesen|Diesem) .* (hat|haben|will|wird) ",
    "no": r"\bkeine?[nmr]?\b",
    "not": r"\bnicht\b",
    "question": r"^(Wann|Wo|Warum|Wer|Was|Wen|Wohin) .*\?$",
    "weak noun": r"\b(diesen|den|einen|dem) (\w+ )?(Studenten|Nachbarn|Kollegen)\b",
    "dative plural": r"\b(den|diesen|unseren|ihren) (\w+ )?(Kindern|Männern|Gästen|Brüdern)\b",
    "purpose": r", um .* (\w+zu\w+|zu \w+)\.$",
    "compound": r"\b(Schreibtischlampe|Winterjacke|Apfelkuchen|Haustür)",
}


@pytest.mark.parametrize("name", PHENOMENA)
def test_phenomenon_is_there(pairs, name):
    assert sum(bool(re.search(PHENOMENA[name], pair.german)) for pair in pairs) >= 3


NOUNS = {noun.german: noun for noun in words.read_nouns()}
# article: genders (p = plural) that it can stand with, and the adjective's ending behind it
ARTICLES = {
    "der": "me fen", "die": "fe pen", "das": "ne", "den": "men pen", "dem": "men nen",
    "einen": "men", "eine": "fe", "ein": "mer nes", "einem": "men nen", "einer": "fen",
    "dieser": "me fen", "dieses": "ne", "diese": "fe pen", "diesen": "men pen",
    "seinen": "men pen", "seine": "fe pen", "ihrem": "men nen", "mein": "mer nes",
}  # fmt: skip


def test_articles_adjectives_and_nouns_agree(pairs):
    stems = {stem for fitting in words.read_adjectives().values() for _, stem, _ in fitting}
    endings = re.compile("({})(e|en|er|es|em)".format("|".join(stems)))
    seen = set()
    for pair in pairs:
        found = re.findall(r"\w+", pair.german)
        for index, article in enumerate(found):
            following = found[index + 1 : index + 3]
            adjective = endings.fullmatch(following[0]) if following else None
            noun = NOUNS.get("".join(following[1:2] if adjective else following[:1]))
            if article.lower() not in ARTICLES or not noun:
                continue
            allowed = ARTICLES[article.lower()].split()
            genders = noun.gender + ("p" if noun.plural == noun.german else "")
            fitting = [each[1:] for each in allowed if each[0] in genders]
            assert fitting, pair.german
            if adjective:
                assert adjective.group(2) in fitting, pair.german
                seen.add(article.lower())
    assert len(seen) >= 12


def test_german_verbs_agree_with_pronouns(pairs):
    """A subordinate clause ends with a verb that agrees with the pronoun it begins with."""
    forms = {
        "ich": "habe bin war muss kann will soll werde".split(),
        "er": "hat ist war muss kann will soll wird".split(),
        "wir": "haben sind waren müssen können wollen sollen werden".split(),
    }
    present = {"ich": 0, "er": 2, "wir": 3}
    for pronoun, person in present.items():
        forms[pronoun] += [verb.prefix + verb.present[person] for verb in words.read_verbs()]
    checked = 0
    for pair in pairs:
        clause = re.search(r"\b(?:[wW]eil|[oO]bwohl|dass) (ich|er|wir) ([^,.?]*)[,.?]", pair.german)
        if clause:
            assert clause.group(2).split()[-1] in forms[clause.group(1)], pair.german
            checked += 1
    assert checked > 50


def test_english_verbs(pairs):
    bases = {verb.english[0] for verb in words.read_verbs()} | {"have", "want"}
    after = r"\b(?:did|does|do|will|should|cannot|have to|has to|wants? to) "
    after += r"(?:not )?(?:(?:often|always|never|sometimes) )?(\w+)"
    checked = 0
    for pair in pairs:
        text = pair.english.replace("I do not know", "")
        for word in re.findall(after, text) if text[-1] == "." else ():
            assert word in bases, pair.english
            checked += 1
        for who, verb in re.findall(r"\b(I|he|she|we|they) (am|is|are|was|were)\b", pair.english):
            fitting = {"I": "am was", "he": "is was", "she": "is was"}.get(who, "are were")
            assert verb in fitting.split(), pair.english
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", pair.english), pair.english
    assert checked > 200


def test_english_plurals(pairs):
    singular = "|".join(noun.english for noun in NOUNS.values())
    several = "two|three|four|five|six|ten|these"
    wrong = re.compile(rf"\b({several}) ([a-z]+ )?({singular})\b(?! [a-z]+s\b)")
    assert not [pair for pair in pairs if wrong.search(pair.english)]


# --- forms written by hand ------------------------------------------------------------------------


def phrase(noun, determiner, plural=False, adjective=None, owner=0):
    drawn = Grammar(1)
    fitting = [item for item in drawn.adjectives[NOUNS[noun].kind] if item[0] == adjective]
    drawn.adjectives[NOUNS[noun].kind] = fitting
    drawn.uniform = lambda: 0.0  # takes the first of everything
    return drawn.phrase(NOUNS[noun], determiner, plural, owner)


PHRASES = """
Mann the klug | der kluge Mann, den klugen Mann, dem klugen Mann | the clever man
Frau a klug | eine kluge Frau, eine kluge Frau, einer klugen Frau | a clever woman
Fahrrad a teuer | ein teures Fahrrad, ein teures Fahrrad, einem teuren Fahrrad | an expensive bicycle
Student this jung | dieser junge Student, diesen jungen Studenten, diesem jungen Studenten | this young student
Nachbar own klug | euer kluger Nachbar, euren klugen Nachbarn, eurem klugen Nachbarn | your clever neighbour
Kind no klug plural | keine klugen Kinder, keine klugen Kinder, keinen klugen Kindern | any clever children
Apfel number frisch plural | zwei frische Äpfel, zwei frische Äpfel, zwei frischen Äpfeln | two fresh apples
Tochter own - | eure Tochter, eure Tochter, eurer Tochter | your daughter
"""  # noqa: E501


@pytest.mark.parametrize("row", words.table(PHRASES), ids=lambda row: row[0])
def test_noun_phrases(row):
    (noun, determiner, adjective, *plural), forms, english = row[0].split(), *row[1:]
    found = phrase(noun, determiner, bool(plural), adjective, words.IHR)
    assert ", ".join(found.cases) == forms
    assert found.object == english


@pytest.mark.parametrize(
    "infinitive, forms",
    [
        ("lesen", "lese liest liest lesen lest lesen"),
        ("arbeiten", "arbeite arbeitest arbeitet arbeiten arbeitet arbeiten"),
        ("laden", "lade lädst lädt laden ladet laden"),
        ("essen", "esse isst isst essen esst essen"),
        ("fahren", "fahre fährst fährt fahren fahrt fahren"),
        ("finden", "finde findest findet finden findet finden"),
    ],
)
def test_german_present(infinitive, forms):
    (verb,) = [verb for verb in words.read_verbs() if verb.infinitive == infinitive]
    assert verb.present == forms.split()


def clause(base, tense, *parts, modal=None):
    (verb,) = [verb for verb in words.read_verbs() if verb.english[0] == base]
    return Clause(phrase("Tante", "own"), verb, tense, parts, modal)


def test_clauses():
    letter = Part("definite", "den Brief", "the letter")
    it = Part("pronoun", "ihn", "it")
    today, never = Part("time", "heute", "today"), Part("frequency", "nie", "never")

    thrown = clause("throw", "past", letter, today)
    assert thrown.verb_second() == "meine Tante hat heute den Brief weggeworfen"
    assert thrown.verb_second("time") == "heute hat meine Tante den Brief weggeworfen"
    assert thrown.verb_last() == "meine Tante heute den Brief weggeworfen hat"
    assert thrown.english() == "my aunt threw away the letter today"
    assert thrown.english("time") == "today my aunt threw away the letter"
    assert thrown.english(question=True) == "did my aunt throw away the letter today"
    assert thrown.without("definite").english(question=True) == "did my aunt throw away today"

    throws = clause("throw", "now", it, today)
    assert throws.verb_first() == "wirft meine Tante ihn heute weg"
    assert throws.verb_last() == "meine Tante ihn heute wegwirft"
    assert throws.english() == "my aunt is throwing it away today"
    assert clause("look", "now", it).english() == "my aunt is looking for it"
    assert clause("go", "past").verb_second() == "meine Tante ist gegangen"
    assert clause("call", "werden").verb_second() == "meine Tante wird anrufen"
    assert clause("go", "future").english() == "my aunt will go"
    assert clause("go", "habit", never).english() == "my aunt never goes"

    must = next(modal for modal in words.table(words.MODALS) if modal[1] == "have to")
    kept = clause("throw", "modal", letter, Part("not", "nicht", ""), modal=must)
    assert kept.verb_second() == "meine Tante muss den Brief nicht wegwerfen"
    assert kept.verb_last() == "meine Tante den Brief nicht wegwerfen muss"
    assert kept.english() == "my aunt does not have to throw away the letter"
    assert kept.english(question=True) == "does my aunt not have to throw away the letter"
    assert kept.without("not").english() == "my aunt has to throw away the letter"
