"""The grammar itself: which sentences there are, and how often."""

import random
from typing import Callable, List, Optional, Sequence, Tuple, TypeVar

from .clause import (
    Clause,
    Pair,
    Part,
    State,
    join,
    sentence,
)
from .inflection import (
    ACC,
    BE,
    BY_GENDER,
    CAN,
    DAT,
    DEFINITE,
    DIES,
    EIN,
    GEN,
    MIXED,
    MODALS,
    MUST,
    NOM,
    PRONOUNS,
    RELATIVE,
    SEIN,
    SHOULD,
    STRONG,
    WAR,
    WAS,
    WEAK,
    Adjective,
    Noun,
    Phrase,
    Verb,
    german_noun,
    imperative,
    read_adjectives,
    read_clock_verbs,
    read_nouns,
    read_verb,
    table,
    with_article,
)
from .lexicon import (
    DIRECTIONS,
    DOUBTS,
    ERRANDS,
    FAULTS,
    FREQUENCIES,
    MANNERS,
    MEANS,
    MERITS,
    NAMES,
    ONES_DE,
    ONES_EN,
    OPINION_VERBS,
    OPINIONS,
    PLACES,
    SPOTS,
    STATES,
    TIMES,
    TITLED,
    VERBS,
    WEATHER,
    WISHES,
    number,
)

T = TypeVar("T")


class Grammar:
    """Draws sentence pairs; the same seed gives the same sequence of pairs."""

    def __init__(self, seed: int) -> None:
        # Only random() is promised to give the same numbers in every version of Python, so all
        # choices are made from it.
        self.uniform = random.Random(seed).random
        self.nouns = read_nouns()
        self.adjectives = read_adjectives()
        self.verbs = [read_verb(row) for row in table(VERBS)]
        self.clock_verbs = read_clock_verbs()
        self.places = table(PLACES)
        self.directions = table(DIRECTIONS)
        self.times = table(TIMES)
        self.templates: List[Tuple[float, Callable[[], Pair]]] = [
            (25, self.statement),
            (7, self.yes_no_question),
            (8, self.wh_question),
            (8, self.that_clause),
            (4, self.whether_clause),
            (9, self.because_clause),
            (5, self.if_clause),
            (2, self.unreal_clause),
            (8, self.relative_clause),
            (4, self.relative_object),
            (7, self.passive),
            (6, self.back_reference),
            (4, self.purpose),
            (3, self.request),
            (3, self.comparison),
            (3, self.measure),
            (2, self.existence),
            (6, self.clock),
            (2, self.since),
            (3, self.liking),
        ]

    def pair(self) -> Pair:
        """One sentence pair."""
        return self.weighted(self.templates)()

    # Choices

    def below(self, end: int) -> int:
        return int(self.uniform() * end)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

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

    def noun(self, kinds: Sequence[str]) -> Noun:
        return self.pick([noun for noun in self.nouns if set(noun.kinds) & set(kinds)])

    def adjective(self, noun: Noun, chance: float) -> Optional[Adjective]:
        fitting = [item for item in self.adjectives if noun.kinds[0] in item.kinds]
        return self.pick(fitting) if fitting and self.chance(chance) else None

    def phrase(
        self,
        noun: Noun,
        determiner: str,
        plural: bool = False,
        adjective: Optional[Adjective] = None,
        owner: str = "ich",
        count: int = 2,
        possessor: Optional[Phrase] = None,
    ) -> Phrase:
        """A noun with its determiner and adjective, inflected for all cases.

        ``determiner`` is one of the, a, this, every, no, own (of ``owner``, a key of PRONOUNS),
        number (``count``), many, bare, and of (``possessor``, in the genitive).
        """
        gender = "p" if plural else noun.gender
        key = BY_GENDER[gender]
        human = noun.kinds[0] in ("person", "family")
        if determiner in ("the", "of"):
            articles, endings, english = list(DEFINITE[gender]), WEAK, "the"
        elif determiner in ("this", "every"):
            stem = {"this": "dies", "every": "jed"}[determiner]
            articles, endings = [stem + ending for ending in DIES[gender]], WEAK
            english = "these" if plural else determiner
        elif determiner in ("a", "no", "own"):
            stem = {"a": "ein", "no": "kein", "own": PRONOUNS[owner].possessive}[determiner]
            articles, endings = [stem + ending for ending in EIN[gender]], MIXED
            articles = [word.replace("euere", "eure") for word in articles]
            english = {"a": "a", "no": "any" if plural else "a"}.get(determiner, "")
            english = english or PRONOUNS[owner].english_possessive
        elif determiner == "many":
            articles, endings, english = ["viel" + end for end in DIES["p"]], STRONG, "many"
        elif determiner == "number":
            (word, english), endings = number(count), STRONG
            articles = [word] * 4
        else:
            articles, endings, english = [""] * 4, STRONG, ""
        tail = ""
        if possessor:
            tail = possessor.cases[GEN]
            english = possessor.subject + ("'" if possessor.subject.endswith("s") else "'s")
        cases = tuple(
            join(
                [
                    articles[case],
                    adjective.stem + endings[gender][case] if adjective else "",
                    german_noun(noun, case, plural),
                    tail,
                ]
            )
            for case in range(4)
        )
        text = join(
            [
                adjective.english if adjective else "",
                noun.english_plural if plural else noun.english,
            ]
        )
        text = with_article(text) if english == "a" else join([english, text])
        return Phrase(
            cases,
            text,
            text,
            gender,
            5 if plural else 2,
            key,
            key if human or plural else "es",
            definite=determiner in ("the", "this", "own", "of"),
            negative=determiner == "no",
            kinds=noun.kinds,
        )

    def pronoun(self, key: str, english: str = "") -> Phrase:
        """A pronoun; ``english`` is the key of its English side, if that is another one."""
        german, target = PRONOUNS[key], PRONOUNS[english or key]
        gender = {"er": "m", "sie": "f", "es": "n"}.get(key, "p")
        return Phrase(
            german.cases,
            target.subject,
            target.object,
            gender,
            german.person,
            key,
            english or key,
            definite=True,
            is_pronoun=True,
        )

    def again(self, phrase: Phrase) -> Phrase:
        """The pronoun that refers back to ``phrase``."""
        return self.pronoun(phrase.german_pronoun, phrase.english_pronoun)

    def name(self) -> Phrase:
        names = NAMES if self.chance(0.7) else TITLED
        text, _, gender = self.pick(names.split(", ")).rpartition(" ")
        oblique = text.replace("Herr ", "Herrn ")
        english = text.replace("Herr ", "Mr ").replace("Frau ", "Mrs ")
        key = BY_GENDER[gender]
        cases = (text, oblique, oblique, oblique + "s")
        return Phrase(cases, english, english, gender, 2, key, key, definite=True)

    def people(self, second: bool = False) -> Phrase:
        """Somebody who does something; in a question (``second``) often the one spoken to."""
        kind = self.weighted([(38, "pronoun"), (18, "name"), (44, "noun")])
        if kind == "pronoun":
            keys = ["ich", "er", "sie", "wir", "they"]
            return self.pronoun(self.pick(["du", "ihr", "Sie", "er", "sie"] if second else keys))
        if kind == "name":
            return self.name()
        return self.somebody("du" if second else self.pick(["ich", "wir"]))

    def somebody(self, owner: str, kinds: Sequence[str] = ("person", "family")) -> Phrase:
        """A person as a full noun phrase; relatives belong to ``owner``."""
        noun = self.noun(kinds)
        plural = bool(noun.plural) and self.chance(0.25)
        if "family" in noun.kinds:
            return self.phrase(noun, "own", plural, None, owner)
        if "own" in noun.kinds and self.chance(0.8):
            return self.phrase(noun, "own", plural, self.adjective(noun, 0.2), owner)
        if plural:
            determiner = self.weighted([(6, "the"), (2, "number"), (1, "many"), (2, "this")])
        else:
            determiner = self.weighted([(8, "the"), (3, "a"), (2, "this"), (1, "every")])
        adjective = None if determiner == "every" else self.adjective(noun, 0.3)
        return self.phrase(noun, determiner, plural, adjective, owner, 2 + self.below(5))

    def thing(self, kinds: Sequence[str], owner: str, negated: bool = False) -> Phrase:
        """A thing or an animal that something is done to."""
        noun = self.noun(kinds)
        adjective = self.adjective(noun, 0.4)
        if noun.kinds[0] in ("vehicle", "room"):
            own = noun.kinds[0] == "room" and self.chance(0.5)
            return self.phrase(noun, "own" if own else "the", False, adjective, owner)
        plural = bool(noun.plural) and self.chance(0.25)
        possessor = None
        if negated:
            determiner = self.pick(["no", "the", "own"])
        elif plural:
            determiner = self.weighted(
                [(4, "the"), (3, "number"), (1, "many"), (2, "own"), (1, "this")]
            )
        else:
            determiner = self.weighted([(4, "the"), (4, "a"), (3, "own"), (1, "this"), (1, "of")])
        if determiner == "of":
            possessor = self.phrase(self.noun(["family"]), "own", False, None, owner)
        count = 2 + self.below(11)
        return self.phrase(noun, determiner, plural, adjective, owner, count, possessor)

    def other_person(self, subject: Phrase, case: int, kinds: Sequence[str]) -> Phrase:
        """A person who is not the subject."""
        key = subject.german_pronoun
        if "person" in kinds and self.chance(0.25):
            # "Ich sehe sie" could be one woman or several people, so this is left out
            keys = ["ich", "du", "wir", "ihr", "er"] + (["sie", "they"] if case == DAT else [])
            alike = [group for group in (("ich", "wir"), ("du", "ihr", "Sie")) if key in group]
            return self.pronoun(
                self.pick([k for k in keys if k != key and k not in sum(alike, ())])
            )
        while True:
            by_name = "person" in kinds and self.chance(0.2)
            phrase = self.name() if by_name else self.somebody(key, kinds)
            if phrase.subject != subject.subject:
                return phrase

    # Phrases around the verb

    def time(self, kind: str, day: bool = False) -> Part:
        """When something happens; ``kind`` is past, now, habit or future. With ``day``, a day."""
        if kind in ("past", "future") and self.chance(0.15):
            count, english = number(2 + self.below(9))
            units = [("Tagen", "days")] if day else [("Tagen", "days"), ("Wochen", "weeks")]
            unit, english_unit = self.pick(units)
            if kind == "past":
                return Part("time", f"vor {count} {unit}", f"{english} {english_unit} ago")
            return Part("time", f"in {count} {unit}", f"in {english} {english_unit}")
        wanted = {kind, "day"} if day else {kind}
        german, english, _ = self.pick([row for row in self.times if wanted <= set(row[2].split())])
        return Part("time", german, english)

    def objects(self, verb: Verb, subject: Phrase, negated: bool) -> List[Part]:
        """What the verb asks for."""
        parts = []
        for preposition, case_name, kinds in verb.objects:
            case = ACC if case_name == "acc" else DAT
            humans = [kind for kind in kinds if kind in ("person", "family")]
            if humans and (len(humans) == len(kinds) or self.chance(0.7)):
                phrase = self.other_person(subject, case, humans)
            else:
                things = [kind for kind in kinds if kind not in humans]
                may_be_none = negated and case == ACC and not preposition
                phrase = self.thing(things, subject.german_pronoun, may_be_none)
            slot = "prep" if preposition else "dat" if case == DAT else "acc"
            if not preposition and phrase.is_pronoun:
                slot += "_pronoun"
            elif slot == "acc" and phrase.definite:
                slot = "acc_definite"
            parts.append(Part(slot, join([preposition, phrase.cases[case]]), phrase.object, phrase))
        return parts

    def company(self, subject: Phrase) -> Part:
        phrase = self.other_person(subject, DAT, ("person", "family"))
        return Part("company", "mit " + phrase.cases[DAT], "with " + phrase.object, phrase)

    def place(self, kinds: Sequence[str]) -> Part:
        rows = [row for row in self.places if set(row[2].split()) & set(kinds)]
        if "any" in kinds:
            rows = [row for row in self.places if "city" not in row[2]]
        german, english, _ = self.pick(rows)
        return Part("place", german, english)

    def event(
        self,
        tenses: str = "past now none habit future werden modal modal_past",
        subject: Optional[Phrase] = None,
        verbs: Optional[Sequence[Verb]] = None,
        negatable: bool = True,
        second: bool = False,
        timeless: bool = False,
    ) -> Clause:
        """Somebody does something, somewhere, at some time.

        ``tenses`` names the tenses to choose from: "now", "habit" and "future" are the German
        present that a word of time makes the English progressive, simple present and future;
        "none" is a present without such a word. ``timeless`` leaves all words of time out.
        """
        weights = {
            "past": 40,
            "now": 10,
            "none": 14,
            "habit": 12,
            "future": 9,
            "werden": 6,
            "modal": 14,
            "modal_past": 5,
            "would": 1,
        }
        tense = self.weighted([(weights[name], name) for name in tenses.split()])
        verb = self.pick(
            [
                verb
                for verb in verbs or self.verbs
                if not ("point" in verb.flags and tense in ("now", "none"))
                and ("state" not in verb.flags or tense == "none")
            ]
        )
        subject = subject or self.people(second)
        negated = negatable and tense != "habit" and self.chance(0.14)
        german, english, when = {
            "past": ("perfect", "past", "past"),
            "now": ("present", "progressive", "now"),
            "none": ("present", "progressive", ""),
            "habit": ("present", "present", "habit"),
            "future": ("present", "will", "future"),
            "werden": ("future", "will", "future"),
            "modal": ("modal", "modal", "future"),
            "modal_past": ("modal_past", "modal_past", "past"),
            "would": ("wuerde", "would", ""),
        }[tense]
        if "state" in verb.flags:
            english = "present"
        modal = None
        if tense in ("modal", "modal_past"):
            modal = self.pick([item for item in MODALS if tense == "modal" or item.past])
        parts = []
        # Without its word of time the English tense could not be known from the German sentence
        needed = tense in ("now", "habit", "future")
        if when and not timeless and (needed or self.chance(0.6)):
            if tense == "habit" and self.chance(0.6):
                parts.append(Part("frequency", *self.pick(table(FREQUENCIES))))
            else:
                parts.append(self.time(when))
        objects = self.objects(verb, subject, negated)
        parts += objects
        if negated and not any(part.phrase and part.phrase.negative for part in objects):
            parts.append(Part("not", "nicht", ""))
        if verb.motion:
            rows = [row for row in self.directions if verb.motion in row[2].split()]
            parts.append(Part("direction", *self.pick(rows)[:2]))
            if verb.motion == "far" and self.chance(0.5):
                parts.append(Part("means", *self.pick(table(MEANS))))
            elif self.chance(0.2) and not negated:
                parts.append(self.company(subject))
        elif verb.company and self.chance(0.35):
            parts.append(self.company(subject))
        elif verb.manners and not negated and self.chance(0.25):
            manner = self.pick(verb.manners)
            parts.append(Part("manner", manner, MANNERS[manner]))
        often = 0.9 if not verb.objects else 0.0 if negated else 0.35
        if verb.places and self.chance(1.0 if "state" in verb.flags else often):
            parts.append(self.place(verb.places))
        return Clause(subject, verb, german, english, parts, modal, negated)

    def state(self, subject: Phrase, tense: str) -> Clause:
        """Somebody is or has something; ``tense`` is present or past."""
        german, yes_de, no_de, english, yes_en, no_en = self.pick(table(STATES))
        predicate = (no_de, no_en) if self.chance(0.35) else (yes_de, yes_en)
        return State(subject, german, english, tense, [Part("predicate", *predicate)])

    def fitting(self, kinds: Sequence[str], names: Sequence[str]) -> List[Adjective]:
        return [item for item in self.adjectives if kinds[0] in item.kinds and item.german in names]

    def judgement(self, kinds: Sequence[str]) -> Tuple[str, str]:
        """An adjective said of something, uninflected, with or without very or too."""
        item = self.pick([item for item in self.adjectives if kinds[0] in item.kinds])
        degrees = [("", "")]
        if item.comparative:
            degrees.append(("sehr ", "very "))
        if item.german in FAULTS:
            degrees.append(("zu ", "too "))
        german, english = self.pick(degrees)
        return german + item.german, english + item.english

    # Sentences

    def opening(self, clause: Clause) -> str:
        """The slot that opens the German sentence."""
        choices: List[Tuple[float, str]] = [(60, "subject")]
        for part in clause.parts:
            if part.slot == "time" and part.german != "gerade":
                choices.append((40, "time"))
            elif part.slot == "place":
                choices.append((12, "place"))
            elif part.german == "manchmal":
                choices.append((20, "frequency"))
            elif part.phrase and part.german[0].islower():
                # in front only where its case tells the object from the subject
                masculine = part.phrase.gender == "m"
                if part.slot == "dat" or (part.slot == "acc_definite" and masculine):
                    choices.append((12, part.slot))
        return self.weighted(choices)

    def main_clause(self, clause: Clause) -> Tuple[str, str]:
        """A main clause, opened by whatever may open it."""
        front = self.opening(clause)
        english_front = front if front in ("time", "frequency") else ""
        return clause.verb_second(front), clause.english_clause(front=english_front)

    def statement(self) -> Pair:
        return sentence(*self.main_clause(self.event()))

    def yes_no_question(self) -> Pair:
        clause = self.event(second=True, negatable=False)
        return sentence(clause.verb_first(), clause.english_question(), "?")

    def wh_words(self, clause: Clause) -> Tuple[str, str, str]:
        """What to ask for in ``clause``: the slot, and the question words."""
        choices = [("", "warum", "why")]
        for part in clause.parts:
            if part.slot == "time":
                choices += [("time", "wann", "when")] * 2
            elif part.slot == "place":
                choices += [("place", "wo", "where")] * 2
            elif part.slot == "direction":
                choices += [("direction", "wohin", "where")] * 2
            elif part.slot == "dat" and part.phrase:
                choices.append(("dat", "wem", "who"))
            elif part.slot in ("acc", "acc_definite") and part.phrase and part.phrase.kinds:
                human = part.phrase.kinds[0] in ("person", "family")
                choices.append((part.slot, "wen", "who") if human else (part.slot, "was", "what"))
        return self.pick(choices)

    def wh_question(self) -> Pair:
        if self.chance(0.15):
            clause = self.event("past none modal", self.pronoun("er"), negatable=False)
            german = "wer " + clause.verb_first(["subject"])
            return sentence(german, "who " + clause.english_clause(subject=False), "?")
        clause = self.event("past none future modal modal_past", second=True, negatable=False)
        slot, german, english = self.wh_words(clause)
        return sentence(
            german + " " + clause.verb_first([slot]),
            english + " " + clause.asked_for(slot).english_question(),
            "?",
        )

    def that_clause(self) -> Pair:
        clause = self.event()
        if self.chance(0.6):
            german, english = self.pick(table(OPINIONS))
        else:
            speaker = self.people()
            infinitive, base = self.pick(table(OPINION_VERBS))
            verb = read_verb([infinitive, "", "", base, "", "", "", ""])
            matrix = Clause(speaker, verb, "present", "present")
            german, english = matrix.verb_second(), matrix.english_clause()
        return sentence(
            f"{german}, dass {clause.verb_last()}", f"{english} that {clause.english_clause()}"
        )

    def whether_clause(self) -> Pair:
        german, english, mark = self.pick(table(DOUBTS))
        clause = self.event("past none future werden modal", negatable=False)
        slot, word, english_word = "", "ob", "whether"
        if self.chance(0.5):
            slot, word, english_word = self.wh_words(clause)
        return sentence(
            f"{german}, {word} {clause.verb_last([slot])}",
            f"{english} {english_word} {clause.asked_for(slot).english_clause()}",
            mark,
        )

    def because_clause(self) -> Pair:
        """Something happens because of, or in spite of, something else."""
        past = self.chance(0.5)
        german, english = self.pick(
            [("weil", "because"), ("weil", "because"), ("obwohl", "although")]
        )
        first = self.people()
        tenses = "past modal_past" if past else "now none future werden modal"
        sub_first = self.chance(0.3)
        clause = self.event(tenses, self.again(first) if sub_first else first)
        who = first if sub_first else self.again(first)
        kind = self.weighted([(5, "state"), (2, "weather"), (2, "must")])
        if kind == "weather":
            present_de, past_de, present_en, past_en, _ = self.pick(table(WEATHER))
            reason = "es " + (past_de if past else present_de)
            english_reason = "it " + (past_en if past else present_en)
        else:
            if kind == "state":
                because = self.state(who, "past" if past else "present")
            else:
                tense = "modal_past" if past else "modal"
                because = self.event(tense, who, negatable=False, timeless=True)
                because.modal = MUST
            reason, english_reason = because.verb_last(), because.english_clause()
        if sub_first:
            return sentence(
                f"{german} {reason}, {clause.verb_first()}",
                f"{english} {english_reason}, {clause.english_clause()}",
            )
        main, english_main = self.main_clause(clause)
        return sentence(f"{main}, {german} {reason}", f"{english_main} {english} {english_reason}")

    def if_clause(self) -> Pair:
        who = self.people()
        again = self.again(who)
        sub_first = self.chance(0.7)
        tense = self.pick(["future", "werden", "modal"])
        clause = self.event(tense, again if sub_first else who, timeless=True)
        if self.chance(0.5):
            weather, _, _, _, english_weather = self.pick(table(WEATHER))
            when = self.time("future") if self.chance(0.6) else Part("time", "", "")
            condition = join(["es", when.german, weather])
            english_condition = join(["it", english_weather, when.english])
        else:
            condition_clause = self.state(who if sub_first else again, "present")
            condition = condition_clause.verb_last()
            english_condition = condition_clause.english_clause()
        if sub_first:
            return sentence(
                f"wenn {condition}, {clause.verb_first()}",
                f"if {english_condition}, {clause.english_clause()}",
            )
        return sentence(
            f"{clause.verb_second()}, wenn {condition}",
            f"{clause.english_clause()} if {english_condition}",
        )

    def unreal_clause(self) -> Pair:
        who = self.people()
        german, wish, english, english_wish = self.pick(table(WISHES))
        condition = State(who, german, english, "unreal", [Part("predicate", wish, english_wish)])
        doers = [verb for verb in self.verbs if not verb.flags]
        clause = self.event("would", self.again(who), doers, negatable=False)
        return sentence(
            f"wenn {condition.verb_last()}, {clause.verb_first()}",
            f"if {condition.english_clause()}, {clause.english_clause()}",
        )

    def described(self, who: Phrase) -> Tuple[str, str]:
        """A German predicate with its finite verb, and the English one, of a person."""
        if self.chance(0.4):
            city, english_city, _ = self.pick(
                [row for row in self.places if "in " == row[0][:3] and "city" in row[2]]
            )
            verb = read_verb(["wohnen", "", "", "live", "", "", "", ""])
            clause = Clause(who, verb, "present", "present", [Part("place", city, english_city)])
        else:
            clause = self.state(who, self.pick(["present", "past"]))
        return clause.verb_first(["subject"]), clause.english_clause(subject=False)

    def judged(self, what: Phrase) -> Tuple[str, str]:
        """A German predicate with its finite verb, and the English one, of a thing."""
        person, kind = what.person, self.weighted([(6, "is"), (2, "price"), (2, "belongs")])
        if kind == "price":
            price = 5 + self.below(95)
            cost = "kostet" if person == 2 else "kosten"
            return f"{cost} {price} Euro", f"{'costs' if person == 2 else 'cost'} {price} euros"
        if kind == "belongs":
            owner = self.somebody("ich", ["own"])
            belong = "gehört" if person == 2 else "gehören"
            english = "belongs to" if person == 2 else "belong to"
            return f"{belong} {owner.cases[DAT]}", f"{english} {owner.object}"
        predicate, english_predicate = self.judgement(what.kinds)
        be, english_be = (WAR, WAS) if self.chance(0.4) else (SEIN, BE)
        return f"{be[person]} {predicate}", f"{english_be[person]} {english_predicate}"

    def relative(self) -> Tuple[Phrase, str, str]:
        """Somebody or something, and the relative clause about it."""
        tenses = "past now none modal modal_past"
        if self.chance(0.35):
            noun = self.noun(["person"])
            plural = self.chance(0.25)
            head = self.phrase(noun, "the", plural, self.adjective(noun, 0.2))
            clause = self.event(tenses, head)
            pronoun = RELATIVE[head.gender][NOM]
            return (
                head,
                f"{pronoun} {clause.verb_last(['subject'])}",
                "who " + clause.english_clause(subject=False),
            )
        while True:
            clause = self.event(tenses, negatable=False)
            for part in clause.parts:
                # an object with "the" becomes the head, and a relative pronoun takes its place
                head = part.phrase
                if not head or not part.english.startswith("the ") or part.slot == "company":
                    continue
                if set(head.kinds) & {"vehicle", "room", "opening"}:
                    continue
                case, preposition = DAT if part.slot == "dat" else ACC, ""
                if part.slot == "prep":
                    preposition, case_name, _ = clause.verb.objects[0]
                    case = DAT if case_name == "dat" else ACC
                pronoun = RELATIVE[head.gender][case]
                return (
                    head,
                    join([preposition, pronoun, clause.verb_last([part.slot])]),
                    "that " + clause.asked_for(part.slot).english_clause(),
                )

    def relative_clause(self) -> Pair:
        head, german, english = self.relative()
        human = head.kinds[0] in ("person", "family")
        predicate, english_predicate = (self.described if human else self.judged)(head)
        return sentence(
            f"{head.cases[NOM]}, {german}, {predicate}",
            f"{head.subject} {english} {english_predicate}",
        )

    def relative_object(self) -> Pair:
        """The relative clause stands behind the verb, away from its head."""
        while True:
            head, german, english = self.relative()
            verbs = [
                verb
                for verb in self.verbs
                if len(verb.objects) == 1
                and verb.objects[0][:2] == ("", "acc")
                and set(verb.objects[0][2]) & set(head.kinds)
                and verb.past not in english.split()
            ]
            if verbs:
                break
        part = Part("acc_definite", head.cases[ACC], head.object)
        verb = self.pick(verbs)
        tense = "present" if "state" in verb.flags else "past"
        clause = Clause(self.people(), verb, {"past": "perfect"}.get(tense, tense), tense, [part])
        return sentence(f"{clause.verb_second()}, {german}", f"{clause.english_clause()} {english}")

    def passive(self) -> Pair:
        verbs = [
            verb
            for verb in self.verbs
            if len(verb.objects) == 1
            and verb.objects[0][:2] == ("", "acc")
            and not verb.flags
            and (not verb.particle or verb.movable)
        ]
        verb = self.pick(verbs)
        kinds = verb.objects[0][2]
        if "person" in kinds:
            subject = self.somebody("ich", ["person", "family"])
        else:
            subject = self.thing(kinds, "ich")
        tense = self.weighted([(5, "past"), (2, "now"), (2, "future"), (3, "modal"), (2, "done")])
        modal = None
        parts = []
        negated = self.chance(0.12)
        german, english = {
            "past": ("preterite", "past"),
            "now": ("present", "progressive"),
            "future": ("present", "will"),
            "modal": ("modal", "modal"),
            "done": ("perfect", "perfect"),
        }[tense]
        if tense == "modal":
            modal = self.pick([CAN, MUST, SHOULD])
        if tense in ("now", "future") or (tense in ("past", "modal") and self.chance(0.6)):
            parts.append(self.time("future" if tense == "modal" else tense))
        if negated:
            parts.append(Part("not", "nicht", ""))
        elif tense != "modal" and self.chance(0.4):
            agent = self.name() if self.chance(0.3) else self.somebody("ich")
            parts.append(Part("agent", "von " + agent.cases[DAT], "by " + agent.object))
        clause = Clause(subject, verb, german, english, parts, modal, negated, passive=True)
        if self.chance(0.2):
            matrix, english_matrix = self.pick(table(OPINIONS))
            return sentence(
                f"{matrix}, dass {clause.verb_last()}",
                f"{english_matrix} that {clause.english_clause()}",
            )
        return sentence(*self.main_clause(clause))

    def back_reference(self) -> Pair:
        """Two clauses; the second speaks of the first one's object, by a pronoun."""
        who = self.people()
        lost = ("lose", "forget", "sell", "throw")
        while True:
            clause = self.event("past", who, negatable=False)
            verb = clause.verb
            part = clause.part("acc") or clause.part("acc_definite")
            what = part.phrase if part else None
            # not a name, and something there is an adjective for
            if what and what.kinds and what.kinds[0] != "room":
                if len(verb.objects) == 1 and verb.base not in lost:
                    break
        it = self.again(what)
        main, english_main = self.main_clause(clause)
        if what.kinds[0] in ("person", "family"):
            second = self.state(it, "past")
            german, english = second.verb_second(), second.english_clause()
            return sentence(f"{main}, aber {german}", f"{english_main}, but {english}")
        losing = [
            verb
            for verb in self.verbs
            if verb.base in lost and set(verb.objects[0][2]) & set(what.kinds)
        ]
        kept = clause.verb.base in ("buy", "find", "bring", "repair", "pack")
        if losing and kept and self.chance(0.7):
            verb = self.pick(losing)
            parts = [Part("acc_pronoun", it.cases[ACC], it.object)]
            if "any" in verb.places and self.chance(0.5):
                parts.append(self.place(["any"]))
            second = Clause(self.again(who), verb, "perfect", "past", parts)
            german, english = second.verb_second(), second.english_clause()
            return sentence(f"{main}, aber {german}", f"{english_main}, but {english}")
        merits = self.fitting(what.kinds, MERITS)
        if merits and clause.verb.base in ("buy", "read", "eat", "borrow") and self.chance(0.7):
            item = self.pick(merits)
            return sentence(
                f"{main}, weil {it.cases[NOM]} sehr {item.german} {WAR[it.person]}",
                f"{english_main} because {it.subject} {WAS[it.person]} very {item.english}",
            )
        item = self.pick(self.fitting(what.kinds, FAULTS))
        return sentence(
            f"{main}, aber {it.cases[NOM]} {SEIN[it.person]} zu {item.german}",
            f"{english_main}, but {it.subject} {BE[it.person]} too {item.english}",
        )

    def purpose(self) -> Pair:
        movers = [verb for verb in self.verbs if verb.motion in ("near", "far")]
        doers = [verb for verb in self.verbs if verb.base in ERRANDS]
        clause = self.event("past future werden modal", verbs=movers, negatable=False)
        clause = clause.without("company")
        aim = self.event("modal", clause.subject, doers, negatable=False).without("place")
        main, english_main = self.main_clause(clause)
        return sentence(
            f"{main}, um {aim.zu_infinitive()}", f"{english_main} {aim.english_infinitive()}"
        )

    def request(self) -> Pair:
        doers = [verb for verb in self.verbs if verb.objects and not verb.flags]
        polite = self.chance(0.4)
        subject = self.pronoun("Sie" if polite else "du")
        clause = self.event("none", subject, doers, negatable=False)
        verb = clause.verb
        finite = verb.infinitive + " Sie" if polite else imperative(verb)
        german = join([finite, "bitte"] + clause.middle(["subject"]) + [verb.prefix])
        return sentence(german, join(["please", verb.base] + clause.complement()), "!")

    def comparison(self) -> Pair:
        """A comparative, or "as ... as"."""
        first = self.noun(["person", "family", "thing", "text"])
        alike = "person family" if first.kinds[0] in ("person", "family") else first.kinds[0]
        second = first
        while second.english == first.english:
            second = self.noun(alike.split())
        adjective = self.pick(
            [
                item
                for item in self.adjectives
                if alike.split()[0] in item.kinds and item.comparative
            ]
        )

        def either(noun: Noun) -> Phrase:
            own = "own" in noun.kinds or self.chance(0.3)
            plural = bool(noun.plural) and self.chance(0.2)
            owner = self.pick(["ich", "du", "wir"])
            determiner = "own" if own else self.pick(["the", "this"])
            return self.phrase(noun, determiner, plural, None, owner)

        left, right = either(first), either(second)
        how = f"{adjective.comparative} als"
        english_how = f"{adjective.english_comparative} than"
        if self.chance(0.3):
            no = self.chance(0.5)
            how = ("nicht " if no else "") + f"so {adjective.german} wie"
            english_how = ("not " if no else "") + f"as {adjective.english} as"
        finite, english_finite = SEIN[left.person], BE[left.person]
        if self.chance(0.2):
            return sentence(
                f"{finite} {left.cases[NOM]} {how} {right.cases[NOM]}",
                f"{english_finite} {left.subject} {english_how} {right.subject}",
                "?",
            )
        return sentence(
            f"{left.cases[NOM]} {finite} {how} {right.cases[NOM]}",
            f"{left.subject} {english_finite} {english_how} {right.subject}",
        )

    def measure(self) -> Pair:
        """How old somebody is, or what something costs."""
        if self.chance(0.6):
            who = self.pick(
                [
                    self.name(),
                    self.pronoun(self.pick(["ich", "er", "sie", "wir", "they"])),
                    self.somebody(self.pick(["ich", "wir"]), ["sibling"]),
                ]
            )
            years, english_years = number(13 + self.below(86))
            return sentence(
                f"{who.cases[NOM]} {SEIN[who.person]} {years} Jahre alt",
                f"{who.subject} {BE[who.person]} {english_years} years old",
            )
        noun = self.noun(["goods"])
        plural = self.chance(0.25)
        what = self.phrase(noun, self.pick(["the", "this"]), plural, self.adjective(noun, 0.8))
        price = 2 + self.below(98)
        verb, english_verb = ("kosten", "cost") if plural else ("kostet", "costs")
        return sentence(
            f"{what.cases[NOM]} {verb} {price} Euro", f"{what.subject} {english_verb} {price} euros"
        )

    def existence(self) -> Pair:
        """There is, there are."""
        if self.chance(0.5):
            noun = self.noun(["item", "pet"])
            place, english_place = self.pick(table(SPOTS))
            forms, past_forms = ("liegt", "liegen"), ("lag", "lagen")
        else:
            noun = self.noun(["building"])
            place, english_place, _ = self.pick([row for row in self.places if "city" in row[2]])
            forms, past_forms = ("gibt es", "gibt es"), ("gab es", "gab es")
        plural = self.chance(0.5)
        determiner = self.pick(["number", "many"]) if plural else "a"
        what = self.phrase(
            noun, determiner, plural, self.adjective(noun, 0.5), "ich", 2 + self.below(11)
        )
        past = self.chance(0.25)
        case = ACC if "es" in forms[0] else NOM
        german = (past_forms if past else forms)[plural]
        english = (("was", "were") if past else ("is", "are"))[plural]
        return sentence(
            f"{place} {german} {what.cases[case]}", f"there {english} {what.object} {english_place}"
        )

    def clock(self) -> Pair:
        """Trains, films and people keep their hours."""
        verb, who = self.pick(self.clock_verbs)
        kind = self.pick(who)
        if kind == "people":
            subject = self.people()
        else:
            subject = self.phrase(self.noun([kind]), "the")
            if kind == "vehicle":
                city, english_city, _ = self.pick(
                    [row for row in self.directions if "town" in row[2]]
                )
                if verb.base == "arrive":
                    city = city.replace("nach", "aus")
                    english_city = english_city.replace("to", "from")
                subject = subject._replace(
                    cases=tuple(f"{case} {city}" for case in subject.cases),
                    subject=f"{subject.subject} {english_city}",
                )
        hour = 2 + self.below(11)
        if self.chance(0.4):
            time = Part("clock", f"um halb {ONES_DE[hour]}", f"at half past {ONES_EN[hour - 1]}")
        else:
            time = Part("clock", f"um {ONES_DE[hour]} Uhr", f"at {ONES_EN[hour]} o'clock")
        german, english, when = self.pick(
            [
                ("perfect", "past", "past"),
                ("present", "present", "habit"),
                ("present", "will", "future"),
                ("future", "will", "future"),
            ]
        )
        parts = [time, self.time(when, day=True)]
        if when == "habit" and self.chance(0.4):
            parts[1] = Part("frequency", *self.pick(table(FREQUENCIES)))
        clause = Clause(subject, verb, german, english, parts)
        shape = self.weighted([(5, "main"), (2, "that"), (2, "when"), (1, "question")])
        if shape == "that":
            matrix, english_matrix = self.pick(table(OPINIONS))
            return sentence(
                f"{matrix}, dass {clause.verb_last()}",
                f"{english_matrix} that {clause.english_clause()}",
            )
        if shape == "when":
            clause = clause.without("clock")
            return sentence("wann " + clause.verb_first(), "when " + clause.english_question(), "?")
        if shape == "question":
            return sentence(clause.verb_first(), clause.english_question(), "?")
        return sentence(*self.main_clause(clause))

    def since(self) -> Pair:
        """German present, English perfect: what has gone on for a time."""
        verbs = [verb for verb in self.verbs if verb.base in ("live", "work", "know", "wait")]
        verb = self.pick(verbs)
        subject = self.people()
        years = verb.base != "wait"
        count, english = number(2 + self.below(11))
        unit, english_unit = ("Jahren", "years") if years else ("Stunden", "hours")
        parts = [Part("time", f"seit {count} {unit}", f"for {english} {english_unit}")]
        parts += self.objects(verb, subject, False)
        if verb.places:
            parts.append(self.place(verb.places))
        return sentence(*self.main_clause(Clause(subject, verb, "present", "since", parts)))

    def liking(self) -> Pair:
        """German says with an adverb what English says with a verb."""
        bases = ("read", "write", "eat", "bake", "repair", "buy", "sing", "dance", "travel", "play")
        verb = self.pick([verb for verb in self.verbs if verb.base in bases])
        subject = self.people()
        negated = self.chance(0.25)
        parts = [Part("manner", "gern", "")]
        if negated:
            parts.append(Part("not", "nicht", ""))
        for _, _, kinds in verb.objects:
            noun = self.noun(kinds)
            what = self.phrase(noun, "bare", True, self.adjective(noun, 0.5))
            parts.append(Part("acc", what.cases[ACC], what.object))
        if verb.motion:
            rows = [row for row in self.directions if verb.motion in row[2].split()]
            parts.append(Part("direction", *self.pick(rows)[:2]))
        elif verb.places and self.chance(0.6):
            parts.append(self.place(verb.places))
        clause = Clause(subject, verb, "present", "likes", parts, negated=negated)
        return sentence(clause.verb_second(), clause.english_clause())
