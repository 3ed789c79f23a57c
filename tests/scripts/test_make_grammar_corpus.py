"""The grammar corpus: the same bytes each time, unseen test sentences, correct inflection.

The German and English forms expected here were written by hand from grammars of the two languages;
the properties are checked on every sentence of a corpus, against tables of this file's own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from grammar_corpus.clause import Clause, Pair, Part
from grammar_corpus.grammar import Grammar
from grammar_corpus.inflection import MUST, present, read_adjectives, read_nouns, read_verb, table
from grammar_corpus.lexicon import VERBS, number

from scripts import make_grammar_corpus as corpus

SCRIPT = Path(corpus.__file__)
SIZES = {"train": 4000, "valid": 200, "test": 200}


@pytest.fixture(scope="module")
def drawn():
    return corpus.splits(1, SIZES)


@pytest.fixture(scope="module")
def pairs(drawn):
    return [pair for split in drawn.values() for pair in split]


def write(folder, *words, hash_seed="0"):
    subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *words],
        check=True,
        env=dict(os.environ, PYTHONHASHSEED=hash_seed),
        stdout=subprocess.PIPE,
    )
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# The corpus


def test_same_arguments_same_bytes(tmp_path):
    first = write(tmp_path / "a", "--pairs", "300", "--held-out", "40", hash_seed="1")
    again = write(tmp_path / "b", "--pairs", "300", "--held-out", "40", hash_seed="2")
    other = write(tmp_path / "c", "--pairs", "300", "--held-out", "40", "--seed", "2")
    sides = [f"{split}.{lang}" for split in ("test", "train", "valid") for lang in ("de", "en")]
    assert sorted(first) == sides
    assert first == again
    assert all(first[name] != other[name] for name in sides)
    for name in sides:
        assert first[name].count(b"\n") == (300 if name.startswith("train") else 40)


def test_choices_use_only_what_every_python_repeats():
    """Random.choice and shuffle may draw differently in another Python; random() may not."""
    drawn = vars(Grammar(1))["uniform"]
    assert drawn.__name__ == "random"
    assert not re.findall(
        r"random\.(?!Random\b)\w+|\.(?:shuffle|choices?|sample)\(", SCRIPT.read_text()
    )


def test_splits_share_no_sentence(drawn):
    assert {name: len(split) for name, split in drawn.items()} == SIZES
    for index in range(2):
        sides = {name: {pair[index] for pair in split} for name, split in drawn.items()}
        for name, sentences in sides.items():
            for other in set(sides) - {name}:
                assert not sentences & sides[other]
    german = [pair.german for split in drawn.values() for pair in split]
    assert len(set(german)) == len(german)


def test_held_out_sentences_do_not_depend_on_the_size_of_train(drawn):
    more = corpus.splits(1, dict(SIZES, train=10))
    assert more["test"] == drawn["test"] and more["valid"] == drawn["valid"]
    assert more["train"] == drawn["train"][:10]


def test_a_sentence_of_another_split_is_left_out(monkeypatch):
    pairs = [
        Pair("Meine Schwester ist heute krank.", "My sister is ill today."),
        Pair("Heute ist meine Schwester krank.", "My sister is ill today."),
        Pair("Mein Bruder ist heute krank.", "My brother is ill today."),
        Pair("Heute ist mein Bruder krank.", "My brother is ill today."),
    ]
    stream = iter(pairs)
    monkeypatch.setattr(Grammar, "pair", lambda self: next(stream))
    drawn = corpus.splits(1, {"test": 1, "train": 2})
    assert drawn == {"test": pairs[:1], "train": pairs[2:]}


def test_more_pairs_than_the_grammar_holds():
    class Poor(Grammar):
        def pair(self):
            return Pair("Das ist immer derselbe Satz.", "This is always the same sentence.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "Grammar", Poor)
        with pytest.raises(ValueError, match="--pairs"):
            corpus.splits(1, {"train": 2})


@pytest.mark.parametrize("words", [("--pairs", "0"), ("--held-out", "-1"), ("--pairs", "many")])
def test_bad_numbers(tmp_path, words):
    result = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "out"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert result.returncode == 2 and words[0] in result.stderr
    assert not (tmp_path / "out").exists()


def test_sentences_are_sentences(pairs):
    lengths = []
    for pair in pairs:
        for text in pair:
            assert re.fullmatch(r"[A-ZÄÖÜ][A-Za-zÄÖÜäöüß0-9,' -]*[.?!]", text), text
            assert "  " not in text and " ," not in text
            lengths.append(len(text.split()))
        assert pair.german[-1] == pair.english[-1]
    assert min(lengths) >= 5 and max(lengths) <= 22
    assert 6 <= sum(lengths) / len(lengths) <= 20


PHENOMENA = {
    "verb last": r", (weil|obwohl|wenn|dass|ob) .*\b(hat|ist|haben|muss|wird)\b[.,]",
    "clause first, then the verb": r"^(Wenn|Weil|Obwohl) [^,]*, (hat|wird|ist|kann|muss) ",
    "separable verb": r"\b(macht|ruft|holt|räumt|zieht) .* (auf|an|ab)[.?,]",
    "modal": r"\b(kann|muss|will|soll|darf) .*en[.?]$",
    "perfect with sein": r"\b(ist|sind|bin) .*(gefahren|gegangen|gelaufen|gefolgt)\b",
    "perfect with haben": r"\b(hat|haben|habe) .*(gekauft|gelesen|eingeladen)\b",
    "passive": r"\bwurden? .*(repariert|gekauft|gelesen)\.|\bworden\b",
    "relative clause": r", (der|die|das|den|dem|denen) [^,]*, (ist|war|hat|wohnt|kostet|sind) ",
    "fronted object": r"^Den .* (hat|haben|will|wird) ",
    "no": r"\bkeine?[nmr]?\b",
    "not": r"\bnicht\b",
    "question": r"^(Wann|Wo|Warum|Wer|Was|Wen|Wem|Wohin) .*\?$",
    "number": r"\b\w+und(zwanzig|dreißig|vierzig|fünfzig|sechzig|siebzig|achtzig|neunzig)\b",
    "time, manner, place": r"\b(heute|morgen|\w+tag|\w+woch) mit dem \w+ (nach|ins|zum|in|ans)\b",
    "purpose": r", um .* (\w+zu\w+|zu \w+)\.$",
    "unreal": r"\b(wäre|hätte)n?, würde",
    "compound": r"\b(Schreibtischlampe|Winterjacke|Apfelkuchen|Haustür)",
    "genitive": r"\b(meines|seines|ihres|unserer|meiner|seiner|ihrer) (Vaters|Mutter|Bruders)\b",
}


@pytest.mark.parametrize("name", PHENOMENA)
def test_phenomenon_is_there(pairs, name):
    assert sum(bool(re.search(PHENOMENA[name], pair.german)) for pair in pairs) >= 3


# Agreement, checked on every sentence

NOUNS = {noun.german: noun for noun in read_nouns()}
# article: genders (p = plural) that it can stand with, and the adjective's ending behind it
ARTICLES = {
    "der": [("m", "e"), ("f", "en"), ("p", "en")],
    "die": [("f", "e"), ("p", "en")],
    "das": [("n", "e")],
    "den": [("m", "en"), ("p", "en")],
    "dem": [("m", "en"), ("n", "en")],
    "einen": [("m", "en")],
    "eine": [("f", "e")],
    "ein": [("m", "er"), ("n", "es")],
    "einem": [("m", "en"), ("n", "en")],
    "einer": [("f", "en")],
    "dieser": [("m", "e"), ("f", "en")],
    "dieses": [("n", "e")],
    "seinen": [("m", "en"), ("p", "en")],
    "seine": [("f", "e"), ("p", "en")],
    "ihrem": [("m", "en"), ("n", "en")],
    "mein": [("m", "er"), ("n", "es")],
}


def test_articles_adjectives_and_nouns_agree(pairs):
    stems = {adjective.stem for adjective in read_adjectives()}
    endings = re.compile("({})(e|en|er|es|em)".format("|".join(stems)))
    seen = set()
    for pair in pairs:
        words = re.findall(r"\w+", re.sub("Frau (Wagner|Schneider)", "Anna", pair.german))
        for index, article in enumerate(words):
            allowed = ARTICLES.get(article.lower())
            following = words[index + 1 : index + 3]
            adjective = endings.fullmatch(following[0]) if following else None
            word = following[1] if adjective and len(following) > 1 else "".join(following[:1])
            noun = NOUNS.get(word)  # singular forms that are not inflected
            if not allowed or not noun:
                continue
            genders = {noun.gender} | ({"p"} if noun.plural == word else set())
            fitting = [ending for gender, ending in allowed if gender in genders]
            assert fitting, pair.german
            if adjective:
                assert adjective.group(2) in fitting, pair.german
                seen.add(article.lower())
    assert len(seen) >= 12


def test_german_verbs_agree_with_pronouns(pairs):
    """A subordinate clause ends with a verb that agrees with the pronoun it begins with."""
    irregular = {
        "ich": "bin war muss kann will darf soll hatte wollte",
        "er": "war muss kann will darf soll wird hatte musste konnte wollte durfte",
        "wir": "sind waren",
    }
    regular = {"ich": "e", "er": "t", "wir": "en"}
    checked = 0
    for pair in pairs:
        clause = re.search(r"\b(?:[wW]eil|[oO]bwohl|dass) (ich|er|wir) ([^,.?]*)[,.?]", pair.german)
        if clause:
            subject, last = clause.group(1), clause.group(2).split()[-1]
            agrees = last in irregular[subject].split() or last.endswith(regular[subject])
            assert agrees, pair.german
            checked += 1
    assert checked > 50


def test_english_verbs(pairs):
    verbs = [read_verb(row) for row in table(VERBS)]
    bases = {verb.base for verb in verbs} | {"have", "want"}
    bases |= {"leave", "arrive", "begin", "end", "get", "fall", "come", "like"}
    for pair in pairs:
        for word in re.findall(r"\b(?:did|does|do|will|should|cannot) not (\w+)", pair.english):
            assert word in bases | {"be"}, pair.english
        for word in re.findall(r"\b(?:have|has|want|wants|allowed) to (\w+)", pair.english):
            assert word in bases | {"be"}, pair.english
        for subject, verb in re.findall(
            r"\b(I|he|she|we|they) (am|is|are|was|were)\b", pair.english
        ):
            if verb == "were" and pair.english.startswith("If "):
                continue
            fitting = {"I": "am was", "he": "is was", "she": "is was", "we": "are were"}
            assert verb in fitting.get(subject, "are were").split(), pair.english
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", pair.english), pair.english


def test_english_plurals(pairs):
    numbers = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|many|these"
    singular = "book|letter|child|man|woman|key|clock|hat|dog|church|bus|dress"
    wrong = re.compile(rf"\b({numbers}) ([a-z]+ )?({singular})\b")
    for pair in pairs:
        assert not wrong.search(pair.english), pair.english


# Forms written by hand


@pytest.mark.parametrize(
    "noun, determiner, plural, adjective, forms, english",
    [
        (
            "Mann", "the", False, "alt",
            ["der alte Mann", "den alten Mann", "dem alten Mann", "des alten Mannes"],
            "the old man",
        ),
        (
            "Frau", "a", False, "klug",
            ["eine kluge Frau", "eine kluge Frau", "einer klugen Frau", "einer klugen Frau"],
            "a clever woman",
        ),
        (
            "Auto", "a", False, "teuer",
            ["ein teures Auto", "ein teures Auto", "einem teuren Auto", "eines teuren Autos"],
            "an expensive car",
        ),
        (
            "Student", "this", False, "jung",
            ["dieser junge Student", "diesen jungen Studenten", "diesem jungen Studenten",
             "dieses jungen Studenten"],
            "this young student",
        ),
        (
            "Nachbar", "own", False, "nett",
            ["mein netter Nachbar", "meinen netten Nachbarn", "meinem netten Nachbarn",
             "meines netten Nachbarn"],
            "my nice neighbour",
        ),
        (
            "Kind", "no", True, "klein",
            ["keine kleinen Kinder", "keine kleinen Kinder", "keinen kleinen Kindern",
             "keiner kleinen Kinder"],
            "any small children",
        ),
        (
            "Apfel", "many", True, "rot",
            ["viele rote Äpfel", "viele rote Äpfel", "vielen roten Äpfeln", "vieler roter Äpfel"],
            "many red apples",
        ),
        (
            "Auto", "bare", True, "neu",
            ["neue Autos", "neue Autos", "neuen Autos", "neuer Autos"],
            "new cars",
        ),
    ],
)  # fmt: skip
def test_noun_phrases(noun, determiner, plural, adjective, forms, english):
    grammar = Grammar(1)
    chosen = next(item for item in grammar.adjectives if item.german == adjective)
    phrase = grammar.phrase(NOUNS[noun], determiner, plural, chosen)
    assert list(phrase.cases) == forms
    assert phrase.object == english


@pytest.mark.parametrize(
    "infinitive, forms",
    [
        ("lesen", "lese liest liest lesen lest lesen"),
        ("arbeiten", "arbeite arbeitest arbeitet arbeiten arbeitet arbeiten"),
        ("laden", "lade lädst lädt laden ladet laden"),
        ("essen", "esse isst isst essen esst essen"),
        ("fahren", "fahre fährst fährt fahren fahrt fahren"),
        ("waschen", "wasche wäschst wäscht waschen wascht waschen"),
        ("tanzen", "tanze tanzt tanzt tanzen tanzt tanzen"),
        ("reisen", "reise reist reist reisen reist reisen"),
        ("finden", "finde findest findet finden findet finden"),
    ],
)
def test_german_present(infinitive, forms):
    verbs = [read_verb(row) for row in table(VERBS)]
    verb = next(verb for verb in verbs if verb.infinitive == infinitive)
    assert present(verb) == forms.split()


def clause(base, german, english, parts=(), **more):
    grammar = Grammar(1)
    verb = next(verb for verb in grammar.verbs if verb.base == base)
    aunt = grammar.phrase(NOUNS["Tante"], "own")
    return Clause(aunt, verb, german, english, parts, **more)


def test_clauses():
    letter = Part("acc_definite", "den Brief", "the letter")
    it = Part("acc_pronoun", "ihn", "it")
    today = Part("time", "heute", "today")

    thrown = clause("throw", "perfect", "past", [letter, today])
    assert thrown.verb_second() == "meine Tante hat heute den Brief weggeworfen"
    assert thrown.verb_second("time") == "heute hat meine Tante den Brief weggeworfen"
    assert thrown.verb_last() == "meine Tante heute den Brief weggeworfen hat"
    assert thrown.english_clause() == "my aunt threw away the letter today"
    assert thrown.english_question() == "did my aunt throw away the letter today"

    throws = clause("throw", "present", "progressive", [it, today])
    assert throws.verb_second() == "meine Tante wirft ihn heute weg"
    assert throws.verb_first() == "wirft meine Tante ihn heute weg"
    assert throws.verb_last() == "meine Tante ihn heute wegwirft"
    assert throws.zu_infinitive() == "ihn wegzuwerfen"
    assert throws.english_clause() == "my aunt is throwing it away today"

    looks = clause("look", "present", "progressive", [it])
    assert looks.english_clause() == "my aunt is looking for it"

    parts = [letter, Part("not", "nicht", "")]
    kept = clause("throw", "modal", "modal", parts, modal=MUST, negated=True)
    assert kept.verb_second() == "meine Tante muss den Brief nicht wegwerfen"
    assert kept.verb_last() == "meine Tante den Brief nicht wegwerfen muss"
    assert kept.english_clause() == "my aunt does not have to throw away the letter"
    assert kept.english_question() == "does my aunt not have to throw away the letter"

    picked = clause("pick", "preterite", "past", passive=True)
    assert picked.verb_second() == "meine Tante wurde abgeholt"
    assert picked.english_clause() == "my aunt was picked up"


def test_receiver_leaves_a_to_behind():
    parts = [
        Part("dat", "dem Kind", "the child"),
        Part("acc_definite", "den Brief", "the letter"),
    ]
    sent = clause("send", "perfect", "past", parts)
    assert sent.english_clause() == "my aunt sent the child the letter"
    assert sent.asked_for("dat").english_question() == "did my aunt send the letter to"
    helped = clause("help", "perfect", "past", parts[:1])
    assert helped.asked_for("dat").english_question() == "did my aunt help"


@pytest.mark.parametrize(
    "value, german, english",
    [
        (12, "zwölf", "twelve"),
        (17, "siebzehn", "seventeen"),
        (30, "dreißig", "thirty"),
        (21, "einundzwanzig", "twenty-one"),
        (99, "neunundneunzig", "ninety-nine"),
    ],
)
def test_numbers(value, german, english):
    assert number(value) == (german, english)
