"""Sentence pairs: one structure, spelled out by German rules and by English ones."""

import random
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from fairseq_plugins.preparation.grammar_corpus import words
from fairseq_plugins.preparation.grammar_corpus.words import ACC, DAT, NOM, Noun, Verb

T = TypeVar("T")

# The German middle field, and the English order behind the verb
GERMAN_ORDER = (
    "subject pronoun time frequency dat definite not manner place indefinite prep state"
).split()
ENGLISH_ORDER = "state pronoun dat definite indefinite prep manner place time".split()
# How often, German tense, English tense, kind of time
TENSES = {
    "past": (40, "perfect", "past", "past"),
    "now": (14, "present", "progressive", "now"),
    "habit": (14, "present", "present", "habit"),
    "future": (9, "present", "will", "future"),
    "werden": (6, "future", "will", "future"),
    "modal": (17, "modal", "modal", "future"),
}


class Pair(NamedTuple):
    german: str
    english: str


class Phrase(NamedTuple):
    """A noun phrase, name or pronoun in both languages."""

    cases: Sequence[str]  # German nominative, accusative, dative
    subject: str  # English
    object: str
    person: int
    pronouns: Tuple[int, int]  # the German and the English one for it, as rows of PRONOUNS
    gender: str = ""  # m f n p; of nouns alone
    kind: str = "person"
    definite: bool = True
    negative: bool = False  # holds "kein", which negates the clause


class Part(NamedTuple):
    """A phrase of a clause; `slot` decides where it stands."""

    slot: str
    german: str
    english: str
    phrase: Optional[Phrase] = None


def join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def sentence(german: str, english: str, mark: str = ".") -> Pair:
    return Pair(*(text[0].upper() + text[1:] + mark for text in (german, english)))


class Clause:
    """A subject, a verb and the phrases around them.

    Args:
        subject: who does it.
        verb: what is done; None for being in the state that a part names.
        tense: a key of `TENSES`; "past" or "now" for a state.
        parts: the other phrases.
        modal: German forms and English words, with the tense "modal".
    """

    def __init__(
        self,
        subject: Phrase,
        verb: Optional[Verb],
        tense: str,
        parts: Sequence[Part] = (),
        modal: Optional[Sequence[str]] = None,
    ):
        self.subject, self.verb, self.tense, self.modal = subject, verb, tense, modal
        self.parts = [Part("subject", subject.cases[NOM], subject.subject, subject), *parts]
        self.negated = any(
            part.slot == "not" or (part.phrase and part.phrase.negative) for part in parts
        )

    def without(self, *slots: str) -> "Clause":
        """The same without the phrases in these slots."""
        parts = [part for part in self.parts[1:] if part.slot not in slots]
        return Clause(self.subject, self.verb, self.tense, parts, self.modal)

    # German

    def german_verbs(self) -> Tuple[str, List[str]]:
        """The finite verb, and the words that close the clause."""
        person, verb, tense = self.subject.person, self.verb, TENSES[self.tense][1]
        if verb is None:
            return (words.WAR if self.tense == "past" else words.SEIN)[person], []
        if tense == "perfect":
            return (words.SEIN if verb.with_sein else words.HABEN)[person], [verb.participle]
        if tense in ("modal", "future"):
            forms = self.modal[0].split() if self.modal else words.WERDEN
            return forms[person], [verb.prefix + verb.infinitive]
        return verb.present[person], [verb.prefix] if verb.prefix else []

    def middle(self, *skip: str) -> List[str]:
        parts = [part for part in self.parts if part.slot not in skip]
        return [p.german for p in sorted(parts, key=lambda p: GERMAN_ORDER.index(p.slot))]

    def verb_first(self, *skip: str) -> str:
        """A question, or a main clause behind something that opens it."""
        finite, closing = self.german_verbs()
        return join(finite, *self.middle(*skip), *closing)

    def verb_second(self, front: str = "subject") -> str:
        """A main clause that the phrase in a slot opens."""
        (opening,) = [part.german for part in self.parts if part.slot == front]
        return opening + " " + self.verb_first(front)

    def verb_last(self, *skip: str) -> str:
        """A subordinate clause without its conjunction."""
        finite, closing = self.german_verbs()
        if self.verb and closing == [self.verb.prefix]:
            return join(*self.middle(*skip), closing[0] + finite)
        return join(*self.middle(*skip), *closing, finite)

    # English

    def english_verbs(self) -> Tuple[str, str, str]:
        """The auxiliary of questions and negation, what follows it, and the finite form that
        replaces both in a statement, empty where the auxiliary stays."""
        person, verb, tense = self.subject.person, self.verb, TENSES[self.tense][2]
        be = (words.WAS if tense == "past" else words.BE)[person]
        if verb is None:
            return be, "", ""
        base, past, _, gerund = verb.english
        if self.modal:
            first, _, to = self.modal[1].partition(" ")
            if not to:
                return first, base, ""
            finite = words.third_person(first) if person == 2 else first
            return words.DO[person], f"{first} to {base}", f"{finite} to {base}"
        if tense == "past":
            return "did", base, past
        if tense == "progressive":
            return be, gerund, ""
        if tense == "will":
            return "will", base, ""
        return words.DO[person], base, words.third_person(base) if person == 2 else base

    def complement(self, *skip: str) -> List[str]:
        """All that follows the English verb."""
        parts = [p for p in self.parts if p.slot in ENGLISH_ORDER and p.slot not in skip]
        parts.sort(key=lambda part: ENGLISH_ORDER.index(part.slot))
        found = [part.english for part in parts]
        particle = self.verb.particle if self.verb else ""
        if particle:  # "throw it away" but "throw away the letter", and always "look for it"
            after_pronoun = particle[0] == "~" and parts and parts[0].slot == "pronoun"
            found.insert(1 if after_pronoun else 0, particle[1:])
        return found

    def english(self, front: str = "", subject: bool = True, question: bool = False) -> str:
        """A statement, opened by the phrase in `front`, or a question."""
        auxiliary, rest, finite = self.english_verbs()
        of_slot = {part.slot: part.english for part in self.parts}
        who = self.subject.subject if subject else ""
        often = of_slot.get("frequency", "")
        if question:
            verbs = [auxiliary, who, "not" if self.negated else "", often, rest]
        elif self.negated:
            verbs = [who, "cannot" if auxiliary == "can" else auxiliary + " not", often, rest]
        else:
            verbs = [who, often, finite] if finite else [who, auxiliary, often, rest]
        return join(of_slot.get(front, ""), *verbs, *self.complement(front))


class Grammar:
    """Draws sentence pairs; the same seed gives the same sequence of pairs."""

    def __init__(self, seed: int):
        # only random() is promised to give the same numbers in every version of Python
        self.uniform = random.Random(seed).random
        self.nouns, self.adjectives = words.read_nouns(), words.read_adjectives()
        self.verbs, self.modals = words.read_verbs(), words.table(words.MODALS)
        self.pronouns = [row.split() for row in words.PRONOUNS.strip().split("\n")]
        self.templates: List[Tuple[float, Callable[[], Pair]]] = [
            (28, self.statement),
            (18, self.question),
            (13, self.that_clause),
            (15, self.adverbial_clause),
            (12, self.relative_clause),
            (5, self.purpose),
        ]

    def pair(self) -> Pair:
        """One sentence pair."""
        return self.weighted(self.templates)()

    # Choices

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.uniform() * len(items))]

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def weighted(self, items: Sequence[Tuple[float, T]]) -> T:
        point = self.uniform() * sum(weight for weight, _ in items)
        for weight, item in items:
            point -= weight
            if point < 0:
                return item
        return items[-1][1]

    # Noun phrases

    def phrase(self, noun: Noun, determiner: str, plural: bool = False, owner: int = 0) -> Phrase:
        """A noun with its determiner (the, this, a, no, own, number), and perhaps an adjective.

        `owner` is a row of `PRONOUNS`.
        """
        gender = "p" if plural else noun.gender
        if determiner == "number":
            endings = words.STRONG[gender].split()
            number, english = self.pick(words.both(words.NUMBERS))
            articles = [number] * 3
        elif determiner in ("the", "this"):
            dies = ["dies" + end for end in words.STRONG[gender].split()]
            articles = words.DEFINITE[gender].split() if determiner == "the" else dies
            english = "these" if plural and determiner == "this" else determiner
            endings = words.WEAK[gender].split()
        else:
            possessive, english = self.pronouns[owner][4], self.pronouns[owner][7]
            stem = {"a": "ein", "no": "kein"}.get(determiner, possessive)
            articles = [stem + end.replace("-", "") for end in words.EIN[gender].split()]
            articles = [article.replace("euere", "eure") for article in articles]
            english = {"a": "a", "no": "any" if plural else "a"}.get(determiner, english)
            endings = words.MIXED[gender].split()
        fitting = self.adjectives[noun.kind] if self.chance(0.4) else []
        _, stem, quality = self.pick(fitting) if fitting else ("", "", "")
        cases = [
            join(articles[case], stem and stem + endings[case], noun.form(case, plural))
            for case in (NOM, ACC, DAT)
        ]
        text = join(quality, noun.english_plural if plural else noun.english)
        text = join("an" if english == "a" and text[0] in "aeiou" else english, text)
        he = {"m": words.ER, "f": words.SIE, "n": words.ES, "p": words.THEY}[gender]
        rows = (he, he if plural or noun.kind in ("person", "family") else words.ES)
        definite, negative = determiner in ("the", "this", "own"), determiner == "no"
        person = 5 if plural else 2
        return Phrase(cases, text, text, person, rows, gender, noun.kind, definite, negative)

    def pronoun(self, german: int, english: Optional[int] = None) -> Phrase:
        """A pronoun, by its rows in `PRONOUNS`."""
        rows = (german, german if english is None else english)
        subject, object_ = self.pronouns[rows[1]][5:7]
        *cases, person = self.pronouns[german][:4]
        return Phrase(cases, subject, object_, int(person), rows)

    def noun(self, kinds: Sequence[str], owner: int, negated: bool = False) -> Phrase:
        """Somebody or something as a full phrase; relatives belong to `owner`."""
        if "person" in kinds and self.chance(0.2):
            name, gender = self.pick(words.NAMES.split(", ")).split()
            he = words.ER if gender == "m" else words.SIE
            return Phrase([name] * 3, name, name, 2, (he, he))
        noun = self.pick([noun for noun in self.nouns if noun.kind in kinds])
        plural = self.chance(0.25)
        determiner = self.pick(["the", "the", "this", "own", "number" if plural else "a"])
        if negated:
            determiner = self.pick(["no", "the"])
        return self.phrase(noun, "own" if noun.kind == "family" else determiner, plural, owner)

    def people(self, second: bool = False) -> Phrase:
        """Who does something; in a question (`second`) often the one spoken to."""
        if self.chance(0.4):
            asked = [words.DU, words.IHR, words.POLITE, words.ER, words.SIE]
            told = [words.ICH, words.ER, words.SIE, words.WIR, words.THEY]
            return self.pronoun(self.pick(asked if second else told))
        owner = words.DU if second else self.pick([words.ICH, words.WIR])
        return self.noun(["person", "family"], owner)

    # Clauses

    def objects(self, verb: Verb, subject: Phrase, negated: bool) -> List[Part]:
        """What the verb asks for."""
        parts = []
        for preposition, case, kinds in verb.objects:
            # "Ich sehe sie" could be one woman or several people, so that is left out
            rows = [words.ICH, words.DU, words.ER, words.WIR]
            rows += [words.SIE, words.THEY] if case == DAT else []
            rows = [r for r in rows if (int(self.pronouns[r][3]) - subject.person) % 3]
            phrase = self.pronoun(self.pick(rows))
            slot = "pronoun"
            if "person" not in kinds or self.chance(0.75):
                may_be_none = negated and case == ACC and not preposition
                phrase = self.noun(
                    kinds, subject.pronouns[0], may_be_none and "person" not in kinds
                )
                slot = "dat" if case == DAT else "definite" if phrase.definite else "indefinite"
            slot = "prep" if preposition else slot
            parts.append(Part(slot, join(preposition, phrase.cases[case]), phrase.object, phrase))
        return parts

    def event(
        self,
        tenses: Sequence[str] = tuple(TENSES),
        subject: Optional[Phrase] = None,
        verbs: Optional[Sequence[Verb]] = None,
        second: bool = False,
        negatable: bool = True,
        timeless: bool = False,
    ) -> Clause:
        """Somebody does something, somewhere, at some time.

        `timeless` leaves words of time out where the English tense can be known without.
        """
        tense = self.weighted([(TENSES[name][0], name) for name in tenses])
        verb, when = self.pick(verbs or self.verbs), TENSES[tense][3]
        subject = subject or self.people(second)
        negated = negatable and tense != "habit" and self.chance(0.15)
        parts = []
        # without it the English tense could not be known from the German sentence
        if tense in ("habit", "future") or (not timeless and self.chance(0.55)):
            slot = "frequency" if tense == "habit" and self.chance(0.6) else "time"
            times = words.TIMES[slot if slot == "frequency" else when]
            parts.append(Part(slot, *self.pick(words.both(times))))
        parts += self.objects(verb, subject, negated)
        if negated and not any(part.phrase and part.phrase.negative for part in parts):
            parts.append(Part("not", "nicht", ""))
        if not negated and verb.where != "to" and self.chance(0.15):
            parts.append(Part("manner", *self.pick(words.both(words.MANNERS))))
        often = 1.0 if verb.where == "to" else 0.3 if verb.objects else 0.7
        if verb.where and self.chance(often):
            parts.append(Part("place", *self.pick(words.both(words.PLACES[verb.where]))))
        modal = self.pick(self.modals) if tense == "modal" else None
        return Clause(subject, verb, tense, parts, modal)

    def state(self, subject: Phrase, tense: str) -> Clause:
        """Somebody is or was tired, and so on."""
        part = Part("state", *self.pick(words.both(words.STATES)))
        negation = [Part("not", "nicht", "")] if self.chance(0.3) else []
        return Clause(subject, None, tense, [part, *negation])

    def main_clause(self, clause: Clause) -> Tuple[str, str]:
        """A main clause, opened by whatever may open it."""
        choices = [(60.0, "subject")]
        for part in clause.parts[1:]:
            if part.slot in ("time", "place"):
                choices.append((40 if part.slot == "time" else 10, part.slot))
            elif part.phrase and part.phrase.gender:
                # in front only where its case tells the object from the subject
                if part.slot == "dat" or (part.slot == "definite" and part.phrase.gender == "m"):
                    choices.append((14, part.slot))
        front = self.weighted(choices)
        return clause.verb_second(front), clause.english(front="time" if front == "time" else "")

    # Sentences

    def statement(self) -> Pair:
        return sentence(*self.main_clause(self.event()))

    def question(self) -> Pair:
        clause = self.event(second=True, negatable=False)
        choices = [("", "", "")] * 3
        if clause.tense not in ("habit", "future"):
            choices = [("", "", ""), ("", "warum", "why"), ("subject", "wer", "who")]
            to = clause.verb is not None and clause.verb.where == "to"
            for part in clause.parts[1:]:
                human = part.phrase and part.phrase.kind in ("person", "family")
                question = {
                    "time": ("wann", "when"),
                    "place": ("wohin" if to else "wo", "where"),
                    "definite": ("wen", "who") if human else ("was", "what"),
                }.get(part.slot)
                choices += [(part.slot, *question)] * 2 if question else []
        slot, german, english = self.pick(choices)
        if slot == "subject":
            parts = clause.parts[1:]
            clause = Clause(self.pronoun(words.ER), clause.verb, clause.tense, parts, clause.modal)
            asked = "who " + clause.english(subject=False)
            return sentence("wer " + clause.verb_first("subject"), asked, "?")
        clause = clause.without(slot)
        asked = join(english, clause.english(question=True))
        return sentence(join(german, clause.verb_first()), asked, "?")

    def that_clause(self) -> Pair:
        german, english, mark = self.pick(words.table(words.OPINIONS))
        clause = self.event(negatable=mark == ".")
        return sentence(f"{german} {clause.verb_last()}", f"{english} {clause.english()}", mark)

    def adverbial_clause(self) -> Pair:
        """Something happens because of something else, in spite of it, or if it does."""
        german, english = self.pick([("weil", "because"), ("obwohl", "although"), ("wenn", "if")])
        past = german != "wenn" and self.chance(0.5)
        who = self.people()
        names = (who, self.pronoun(*who.pronouns))  # in the first clause, and in the second
        first = self.chance(0.4)  # the subordinate clause
        clause = self.event(["past"] if past else ["werden", "modal"], names[first], timeless=True)
        because = self.state(names[not first], "past" if past else "now")
        reason, english_reason = because.verb_last(), because.english()
        if first:
            return sentence(
                f"{german} {reason}, {clause.verb_first()}",
                f"{english} {english_reason}, {clause.english()}",
            )
        main, english_main = self.main_clause(clause)
        return sentence(f"{main}, {german} {reason}", f"{english_main} {english} {english_reason}")

    def relative_clause(self) -> Pair:
        """Somebody who does something, or something that is acted on, and what it is like."""
        tenses = ["past", "now", "modal"]
        if self.chance(0.5):
            noun = self.pick([noun for noun in self.nouns if noun.kind == "person"])
            head = self.phrase(noun, "the", self.chance(0.25))
            clause = self.event(tenses, head)
            relative, english = clause.verb_last("subject"), "who " + clause.english(subject=False)
        else:
            verb = self.pick([verb for verb in self.verbs if verb.transitive])
            noun = self.pick([noun for noun in self.nouns if noun.kind in verb.objects[0][2]])
            head = self.phrase(noun, "the", self.chance(0.25))
            clause = self.event(tenses, verbs=[verb], negatable=False)
            clause = clause.without("pronoun", "definite", "indefinite")
            relative, english = clause.verb_last(), "that " + clause.english()
        pronoun = words.DEFINITE[head.gender].split()[NOM if "who" in english[:3] else ACC]
        tense = self.pick(["now", "past"])
        what = self.state(head, tense)
        if head.kind not in ("person", "family"):
            item = self.pick(self.adjectives[head.kind])
            very = self.pick([("", ""), ("sehr ", "very "), ("zu ", "too ")])
            part = Part("state", very[0] + item[0], very[1] + item[2])
            what = Clause(head, None, tense, [part])
        return sentence(
            f"{head.cases[NOM]}, {pronoun} {relative}, {what.verb_first('subject')}",
            f"{head.subject} {english} {what.english(subject=False)}",
        )

    def purpose(self) -> Pair:
        """Somebody goes somewhere in order to do something."""
        movers = [verb for verb in self.verbs if verb.where == "to"]
        doers = [verb for verb in self.verbs if verb.objects]
        clause = self.event(["past", "werden", "modal"], verbs=movers, negatable=False)
        verb = self.pick(doers)
        aim = Clause(clause.subject, verb, "now", self.objects(verb, clause.subject, False))
        zu = verb.prefix + "zu" if verb.prefix else "zu "
        german = join(*aim.middle("subject"), zu + verb.infinitive)
        main, english_main = self.main_clause(clause)
        english = join("to", verb.english[0], *aim.complement())
        return sentence(f"{main}, um {german}", f"{english_main} {english}")
