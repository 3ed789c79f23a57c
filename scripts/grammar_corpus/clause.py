"""Clauses: a verb with its subject and phrases, put in each language's order."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

from .inflection import (
    BE,
    DO,
    HABEN,
    HAETTE,
    HATTE,
    HAVE,
    NOM,
    SEIN,
    SEIN_VERB,
    WAERE,
    WAR,
    WAS,
    WERDEN,
    WUERDE,
    WURDE,
    Modal,
    Phrase,
    Verb,
    present,
    third_person,
)

# The German middle field and the English order behind the verb
GERMAN_ORDER = (
    "subject acc_pronoun dat_pronoun time clock frequency dat acc_definite not agent manner means "
    "company place acc prep direction predicate"
).split()
GERMAN_ORDER_OBJECTS_FIRST = (
    "subject acc_pronoun dat_pronoun dat acc_definite time clock frequency not agent manner means "
    "company place acc prep direction predicate"
).split()
ENGLISH_ORDER = (
    "predicate dat_pronoun dat acc_pronoun acc_definite acc to prep agent manner direction means "
    "company place clock time"
).split()


def join(words: Sequence[str]) -> str:
    return " ".join(word for word in words if word)


class Part(NamedTuple):
    """A phrase of a clause, in both languages; ``slot`` decides where it stands."""

    slot: str
    german: str
    english: str
    phrase: Optional[Phrase] = None


class Clause:
    """A verb with its subject and the phrases around it, in both languages.

    ``german`` is one of present, perfect, future, modal, modal_past, wuerde; ``english`` one of
    present, progressive, past, will, modal, modal_past, would, since, likes. With ``passive`` the
    subject is what the action is done to.
    """

    def __init__(
        self,
        subject: Phrase,
        verb: Verb,
        german: str,
        english: str,
        parts: Sequence[Part] = (),
        modal: Optional[Modal] = None,
        negated: bool = False,
        passive: bool = False,
    ) -> None:
        self.subject = subject
        self.verb = verb
        self.german_tense = german
        self.english_tense = english
        self.modal = modal
        self.passive = passive
        self.negated = negated
        self.parts = [Part("subject", subject.cases[NOM], subject.subject)] + list(parts)

    def part(self, slot: str) -> Optional[Part]:
        return next((part for part in self.parts if part.slot == slot), None)

    def without(self, *slots: str) -> "Clause":
        """The same clause without the parts in ``slots``."""
        kept = [part for part in self.parts if part.slot not in slots + ("subject",)]
        return self.with_parts(kept)

    def with_parts(self, parts: Sequence[Part]) -> "Clause":
        return Clause(
            self.subject,
            self.verb,
            self.german_tense,
            self.english_tense,
            parts,
            self.modal,
            self.negated,
            self.passive,
        )

    def asked_for(self, slot: str) -> "Clause":
        """The English side of a question or relative clause about ``slot``, which leaves: of two
        objects the receiver leaves a "to" behind ("who did she give the letter to")."""
        left = self.without(slot)
        if slot == "dat" and any(part.slot.startswith("acc") for part in left.parts):
            return left.with_parts(left.parts[1:] + [Part("to", "", "to")])
        return left

    # German

    def german_verbs(self) -> Tuple[str, List[str]]:
        """The finite verb and the words that close the clause."""
        verb, person = self.verb, self.subject.person
        infinitive = verb.prefix + verb.infinitive
        if self.passive:
            infinitive = verb.participle + " werden"
        if self.german_tense == "present":
            if self.passive:
                return WERDEN[person], [verb.participle]
            return present(verb)[person], [verb.prefix] if verb.prefix else []
        if self.german_tense == "preterite":  # of the passive
            return WURDE[person], [verb.participle]
        if self.german_tense == "perfect":
            if self.passive:
                return SEIN[person], [verb.participle, "worden"]
            return (SEIN if verb.with_sein else HABEN)[person], [verb.participle]
        if self.german_tense == "future":
            return WERDEN[person], [infinitive]
        if self.german_tense == "wuerde":
            return WUERDE[person], [infinitive]
        assert self.modal is not None
        forms = self.modal.present if self.german_tense == "modal" else self.modal.past
        return forms[person], [infinitive]

    def middle(self, skip: Sequence[str] = ()) -> List[str]:
        parts = [part for part in self.parts if part.slot not in skip]
        objects_first = self.negated or self.english_tense == "since"
        order = GERMAN_ORDER_OBJECTS_FIRST if objects_first else GERMAN_ORDER
        parts.sort(key=lambda part: order.index(part.slot))
        return [part.german for part in parts if part.german]

    def verb_second(self, front: str = "subject") -> str:
        """A main clause; the phrase in slot ``front`` opens it."""
        opening = self.part(front)
        assert opening is not None
        finite, closing = self.german_verbs()
        return " ".join([opening.german, finite] + self.middle([front]) + closing)

    def verb_first(self, skip: Sequence[str] = ()) -> str:
        """A question, or a main clause behind something that opens it."""
        finite, closing = self.german_verbs()
        return " ".join([finite] + self.middle(skip) + closing)

    def verb_last(self, skip: Sequence[str] = ()) -> str:
        """A subordinate clause, without its conjunction."""
        finite, closing = self.german_verbs()
        if self.german_tense == "present" and not self.passive:
            return " ".join(self.middle(skip) + ["".join(closing) + finite])
        return " ".join(self.middle(skip) + closing + [finite])

    def zu_infinitive(self) -> str:
        verb = self.verb
        joined = verb.prefix + "zu" if verb.prefix else "zu "
        return " ".join(self.middle(["subject", "time", "not"]) + [joined + verb.infinitive])

    # English

    def english_verbs(self) -> Tuple[str, str, str]:
        """An auxiliary and the words after it; or, with no auxiliary, the finite verb.

        Returns (auxiliary, rest, finite): ``finite`` is empty if there is an auxiliary, else
        ``auxiliary`` is the form of "do" for questions and negation.
        """
        verb, person, tense = self.verb, self.subject.person, self.english_tense
        base, gerund = verb.base, verb.gerund
        participle = verb.past_participle
        if self.passive:
            if tense == "past":
                return WAS[person], participle, ""
            if tense == "progressive":
                return BE[person], "being " + participle, ""
            if tense == "perfect":
                return HAVE[person], "been " + participle, ""
            base = "be " + participle
        if tense == "present":
            return DO[person], base, third_person(base) if person == 2 else base
        if tense == "progressive":
            return BE[person], gerund, ""
        if tense == "past":
            return "did", base, verb.past
        if tense == "since":
            rest = participle if "state" in verb.flags else "been " + gerund
            return HAVE[person], rest, ""
        if tense == "likes":
            return DO[person], "like " + gerund, ("likes " if person == 2 else "like ") + gerund
        if tense in ("will", "would"):
            return tense, base, ""
        assert self.modal is not None
        words = self.modal.english if tense == "modal" else self.modal.english_past
        if words == "allowed to":
            return (BE if tense == "modal" else WAS)[person], words + " " + base, ""
        if words in ("can", "could", "should"):
            return words, base, ""
        plain = self.modal.english + " " + base
        if tense == "modal_past":
            return "did", plain, words + " " + base
        first, _, rest = words.partition(" ")
        finite = (third_person(first) if person == 2 else first) + " " + rest + " " + base
        return DO[person], plain, finite

    def complement(self, skip: Sequence[str] = ()) -> List[str]:
        """All that follows the English verb."""
        parts = [
            part for part in self.parts if part.slot in ENGLISH_ORDER and part.slot not in skip
        ]
        parts.sort(key=lambda part: ENGLISH_ORDER.index(part.slot))
        words = [part.english for part in parts]
        if self.verb.particle:
            # "throw it away" but "throw away the letter", and always "look for it"
            split = self.verb.movable and parts and parts[0].slot == "acc_pronoun"
            words.insert(1 if split else 0, self.verb.particle)
        return [word for word in words if word]

    def english_clause(
        self, skip: Sequence[str] = (), front: str = "", subject: bool = True
    ) -> str:
        """A statement; the phrase in slot ``front`` opens it."""
        auxiliary, rest, finite = self.english_verbs()
        frequency = self.part("frequency")
        adverb = [frequency.english] if frequency else []
        if self.negated:
            verbs = ["cannot"] if auxiliary == "can" else [auxiliary, "not"]
            verbs += adverb + [rest]
        elif finite:
            verbs = adverb + [finite]
        else:
            verbs = [auxiliary] + adverb + [rest]
        opening = self.part(front)
        return join(
            ([opening.english] if opening else [])
            + ([self.subject.subject] if subject else [])
            + verbs
            + self.complement(tuple(skip) + (front,))
        )

    def english_question(self, skip: Sequence[str] = ()) -> str:
        auxiliary, rest, _ = self.english_verbs()
        frequency = self.part("frequency")
        return join(
            [auxiliary, self.subject.subject]
            + (["not"] if self.negated else [])
            + ([frequency.english] if frequency else [])
            + [rest]
            + self.complement(skip)
        )

    def english_infinitive(self) -> str:
        return " ".join(["to", self.verb.base] + self.complement(["time"]))


class State(Clause):
    """Somebody is or has something; ``tense`` is present, past or unreal (if she were, had)."""

    def __init__(
        self, subject: Phrase, german: str, english: str, tense: str, parts: Sequence[Part]
    ):
        super().__init__(subject, SEIN_VERB, tense, tense, parts)
        self.sein, self.be = german == "sein", english == "be"

    def german_verbs(self) -> Tuple[str, List[str]]:
        forms = {
            "present": SEIN if self.sein else HABEN,
            "past": WAR if self.sein else HATTE,
            "unreal": WAERE if self.sein else HAETTE,
        }[self.german_tense]
        return forms[self.subject.person], []

    def english_verbs(self) -> Tuple[str, str, str]:
        person, present_tense = self.subject.person, self.english_tense == "present"
        if self.be:
            unreal = self.english_tense == "unreal"
            return "were" if unreal else (BE if present_tense else WAS)[person], "", ""
        if present_tense:
            return DO[person], "have", "has" if person == 2 else "have"
        return "did", "have", "had"


class Pair(NamedTuple):
    german: str
    english: str


def sentence(german: str, english: str, mark: str = ".") -> Pair:
    return Pair(*(text[0].upper() + text[1:] + mark for text in (german, english)))
