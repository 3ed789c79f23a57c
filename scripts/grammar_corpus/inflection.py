"""Forms of the words in both languages: cases, tenses, agreement."""

import re
from typing import List, NamedTuple, Sequence, Tuple

from .lexicon import (
    ADJECTIVES,
    CLOCK_VERBS,
    NOUNS,
)

NOM, ACC, DAT, GEN = range(4)

# Person: 0 ich, 1 du, 2 er/sie/es, 3 wir, 4 ihr, 5 sie (plural) and the polite Sie
SEIN = "bin bist ist sind seid sind".split()
WAR = "war warst war waren wart waren".split()
HABEN = "habe hast hat haben habt haben".split()
HATTE = "hatte hattest hatte hatten hattet hatten".split()
HAETTE = "hätte hättest hätte hätten hättet hätten".split()
WERDEN = "werde wirst wird werden werdet werden".split()
WURDE = "wurde wurdest wurde wurden wurdet wurden".split()
WAERE = "wäre wärst wäre wären wärt wären".split()
WUERDE = "würde würdest würde würden würdet würden".split()
BE = "am are is are are are".split()
WAS = "was were was were were were".split()
HAVE = "have have has have have have".split()
DO = "do do does do do do".split()

# Endings by gender (p = plural) in the order nominative, accusative, dative, genitive
DEFINITE = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "p": ("die", "die", "den", "der"),
}
RELATIVE = dict(DEFINITE, p=("die", "die", "denen", "deren"))
DIES = {
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "p": ("e", "e", "en", "er"),
}
EIN = dict(DIES, m=("", "en", "em", "es"), n=("", "", "em", "es"))
# Endings of an adjective: after der-words, after ein-words, and without any article
WEAK = {
    "m": ("e", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("e", "e", "en", "en"),
    "p": ("en", "en", "en", "en"),
}
MIXED = dict(WEAK, m=("er", "en", "en", "en"), n=("es", "es", "en", "en"))
STRONG = dict(DIES)


class Noun(NamedTuple):
    """A noun of both languages; ``gender`` is m, f or n, ``plural`` is empty if there is none."""

    german: str
    gender: str
    weak: bool
    plural: str
    english: str
    english_plural: str
    kinds: Tuple[str, ...]


class Adjective(NamedTuple):
    """An adjective; ``stem`` takes the German endings, the comparatives may be empty."""

    german: str
    stem: str
    comparative: str
    english: str
    english_comparative: str
    kinds: Tuple[str, ...]


class Pronoun(NamedTuple):
    """German cases, the German possessive's stem, and the English forms."""

    cases: Tuple[str, str, str]
    person: int
    possessive: str
    subject: str
    object: str
    english_possessive: str


PRONOUNS = {
    "ich": Pronoun(("ich", "mich", "mir"), 0, "mein", "I", "me", "my"),
    "du": Pronoun(("du", "dich", "dir"), 1, "dein", "you", "you", "your"),
    "er": Pronoun(("er", "ihn", "ihm"), 2, "sein", "he", "him", "his"),
    "sie": Pronoun(("sie", "sie", "ihr"), 2, "ihr", "she", "her", "her"),
    "es": Pronoun(("es", "es", "ihm"), 2, "sein", "it", "it", "its"),
    "wir": Pronoun(("wir", "uns", "uns"), 3, "unser", "we", "us", "our"),
    "ihr": Pronoun(("ihr", "euch", "euch"), 4, "euer", "you", "you", "your"),
    "they": Pronoun(("sie", "sie", "ihnen"), 5, "ihr", "they", "them", "their"),
    "Sie": Pronoun(("Sie", "Sie", "Ihnen"), 5, "Ihr", "you", "you", "your"),
}
BY_GENDER = {"m": "er", "f": "sie", "n": "es", "p": "they"}


class Phrase(NamedTuple):
    """A noun phrase, name or pronoun, spelled out in both languages."""

    cases: Tuple[str, ...]  # German: nominative, accusative, dative[, genitive]
    subject: str  # English
    object: str
    gender: str  # m f n p; of a pronoun, that of its person
    person: int
    german_pronoun: str  # keys into PRONOUNS: what refers back to this phrase
    english_pronoun: str
    definite: bool
    is_pronoun: bool = False
    negative: bool = False  # holds "kein", which negates the whole German clause
    kinds: Tuple[str, ...] = ()


class Verb(NamedTuple):
    """A verb of both languages with the company it keeps (see the table above)."""

    prefix: str
    infinitive: str  # without the prefix
    changed: str
    participle: str
    with_sein: bool
    base: str
    past: str
    past_participle: str
    gerund: str
    particle: str
    movable: bool
    objects: Tuple[Tuple[str, str, Tuple[str, ...]], ...]  # (preposition, case, kinds)
    motion: str
    company: bool
    places: Tuple[str, ...]
    manners: Tuple[str, ...]
    flags: Tuple[str, ...]


def english_plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def third_person(base: str) -> str:
    irregular = {"have": "has", "go": "goes", "be": "is"}
    if base in irregular:
        return irregular[base]
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "o")) else "s")


def regular_past(base: str) -> str:
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + ("d" if base.endswith("e") else "ed")


def regular_gerund(base: str) -> str:
    return (base[:-1] if base.endswith("e") and not base.endswith("ee") else base) + "ing"


def with_article(english: str) -> str:
    return ("an " if english[0] in "aeiou" else "a ") + english


def present(verb: Verb) -> List[str]:
    """The six forms of the German present, without the prefix."""
    stem = verb.infinitive[:-2] if verb.infinitive.endswith("en") else verb.infinitive[:-1]
    link = "e" if stem.endswith(("t", "d")) else ""
    second = verb.changed or stem + link
    third = verb.changed or stem + link
    return [
        stem + "e",
        second + ("t" if second.endswith(("s", "ß", "z")) else "st"),
        third + "t",
        verb.infinitive,
        stem + link + "t",
        verb.infinitive,
    ]


def imperative(verb: Verb) -> str:
    """The imperative of du, without the prefix: only a change of e to i reaches it."""
    stem = verb.infinitive[:-2]
    if verb.changed and "i" in verb.changed and "i" not in stem:
        return verb.changed
    return stem + ("e" if stem.endswith(("t", "d", "ier")) else "")


def german_noun(noun: Noun, case: int, plural: bool) -> str:
    """The noun's form in a case and number."""
    if plural:
        form = noun.plural
        return form + "n" if case == DAT and not form.endswith(("n", "s")) else form
    if noun.weak and case != NOM:
        return noun.german + ("n" if noun.german.endswith(("e", "r")) else "en")
    if case == GEN and noun.gender != "f":
        one_syllable = len(re.findall("[aeiouäöü]+", noun.german.lower())) == 1
        return noun.german + ("es" if one_syllable else "s")
    return noun.german


def table(text: str) -> List[List[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().split("\n")]


def read_nouns() -> List[Noun]:
    nouns = []
    for german, gender, plural, english, kinds in table(NOUNS):
        singular, _, irregular = english.partition(", ")
        nouns.append(
            Noun(
                german,
                gender[0],
                gender.endswith("*"),
                plural.replace("-", ""),
                singular,
                irregular or english_plural(singular),
                tuple(kinds.split()),
            )
        )
    return nouns


def read_adjectives() -> List[Adjective]:
    return [
        Adjective(
            de, stem, more.replace("-", ""), en, more_en.replace("-", ""), tuple(kinds.split())
        )
        for de, stem, more, en, more_en, kinds in table(ADJECTIVES)
    ]


def read_verb(row: Sequence[str]) -> Verb:
    german, changed, participle, english, objects, places, manners, flags = row
    prefix, _, infinitive = german.rpartition("+")
    forms = english.split()
    particle = ""
    if forms[-1][0] in "~+":
        particle = forms.pop()
    base = forms[0]
    past = forms[1] if len(forms) > 1 else regular_past(base)
    slots, motion, company = [], "", False
    for item in objects.split():
        if item == "with":
            company = True
        elif ":" in item:
            case, _, kinds = item.partition(":")
            preposition, _, case = case.rpartition("+")
            slots.append((preposition, case, tuple(kinds.split(","))))
        else:
            motion = item
    return Verb(
        prefix,
        infinitive,
        changed,
        participle.replace("ist ", ""),
        participle.startswith("ist "),
        base,
        past,
        forms[2] if len(forms) > 2 else past,
        forms[3] if len(forms) > 3 else regular_gerund(base),
        particle[1:],
        particle.startswith("~"),
        tuple(slots),
        motion,
        company,
        tuple(places.split()),
        tuple(manners.split()),
        tuple(flags.split()),
    )


def read_clock_verbs() -> List[Tuple[Verb, Tuple[str, ...]]]:
    return [
        (read_verb([german, changed, participle, english, "", "", "", ""]), tuple(who.split()))
        for german, changed, participle, english, who in table(CLOCK_VERBS)
    ]


class Modal(NamedTuple):
    """A German modal and how English says it: an auxiliary, or words that inflect themselves."""

    present: List[str]
    past: List[str]
    english: str
    english_past: str


MODALS = [
    Modal(
        "kann kannst kann können könnt können".split(),
        "konnte konntest konnte konnten konntet konnten".split(),
        "can",
        "could",
    ),
    Modal(
        "muss musst muss müssen müsst müssen".split(),
        "musste musstest musste mussten musstet mussten".split(),
        "have to",
        "had to",
    ),
    Modal(
        "will willst will wollen wollt wollen".split(),
        "wollte wolltest wollte wollten wolltet wollten".split(),
        "want to",
        "wanted to",
    ),
    Modal("soll sollst soll sollen sollt sollen".split(), [], "should", ""),
    Modal(
        "darf darfst darf dürfen dürft dürfen".split(),
        "durfte durftest durfte durften durftet durften".split(),
        "allowed to",
        "allowed to",
    ),
]
CAN, MUST, SHOULD = MODALS[0], MODALS[1], MODALS[3]
SEIN_VERB = read_verb(["sein", "", "ist gewesen", "be was been", "", "", "", ""])
