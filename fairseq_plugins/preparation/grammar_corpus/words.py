"""The words of the grammar corpus, as lists, and their forms."""

from typing import Dict, List, NamedTuple, Tuple

NOM, ACC, DAT = range(3)
# Persons: 0 ich, 1 du, 2 er/sie/es, 3 wir, 4 ihr, 5 sie (plural) and the polite Sie
SEIN = "bin bist ist sind seid sind".split()
WAR = "war warst war waren wart waren".split()
HABEN = "habe hast hat haben habt haben".split()
WERDEN = "werde wirst wird werden werdet werden".split()
BE = "am are is are are are".split()
WAS = "was were was were were were".split()
DO = "do do does do do do".split()

# Endings by gender (p = plural): nominative, accusative, dative
DEFINITE = {"m": "der den dem", "f": "die die der", "n": "das das dem", "p": "die die den"}
STRONG = {"m": "er en em", "f": "e e er", "n": "es es em", "p": "e e en"}
EIN = dict(STRONG, m="- en em", n="- - em")
WEAK = {"m": "e en en", "f": "e e en", "n": "e e en", "p": "en en en"}  # of adjectives
MIXED = dict(WEAK, m="er en en", n="es es en")

# German cases, person, possessive; English subject, object, possessive
PRONOUNS = """
ich mich mir 0 mein I me my
du dich dir 1 dein you you your
er ihn ihm 2 sein he him his
sie sie ihr 2 ihr she her her
es es ihm 2 sein it it its
wir uns uns 3 unser we us our
ihr euch euch 4 euer you you your
sie sie ihnen 5 ihr they them their
Sie Sie Ihnen 5 Ihr you you your
"""
ICH, DU, ER, SIE, ES, WIR, IHR, THEY, POLITE = range(9)

# By kind: gender (* weak declension), German, its plural, English, its plural if irregular
NOUNS = {
    "person": "m Lehrer Lehrer teacher, f Lehrerin Lehrerinnen teacher, "
    "m* Student Studenten student, f Ärztin Ärztinnen doctor, m* Nachbar Nachbarn neighbour, "
    "f Freundin Freundinnen friend, m* Kollege Kollegen colleague, m Mann Männer man men, "
    "f Frau Frauen woman women, n Kind Kinder child children, m Gast Gäste guest",
    "family": "m Bruder Brüder brother, f Schwester Schwestern sister, m Sohn Söhne son, "
    "f Tochter Töchter daughter, m Onkel Onkel uncle, f Tante Tanten aunt",
    "text": "n Buch Bücher book, n Kochbuch Kochbücher cookbook, f Zeitung Zeitungen newspaper, "
    "m Roman Romane novel, m Bericht Berichte report, m Reisebericht Reiseberichte travel_report",
    "mail": "m Brief Briefe letter, f Postkarte Postkarten postcard, "
    "m Liebesbrief Liebesbriefe love_letter",
    "food": "m Apfel Äpfel apple, n Ei Eier egg, m Kuchen Kuchen cake, f Suppe Suppen soup, "
    "m Apfelkuchen Apfelkuchen apple_cake, n Käsebrot Käsebrote cheese_sandwich cheese_sandwiches",
    "machine": "n Fahrrad Fahrräder bicycle, m Computer Computer computer, f Lampe Lampen lamp, "
    "f Schreibtischlampe Schreibtischlampen desk_lamp, f Uhr Uhren clock",
    "thing": "m Stuhl Stühle chair, m Gartenstuhl Gartenstühle garden_chair, f Tasche Taschen bag, "
    "m Koffer Koffer suitcase, m Schlüssel Schlüssel key, m Autoschlüssel Autoschlüssel car_key",
    "clothes": "m Hut Hüte hat, m Mantel Mäntel coat, m Regenmantel Regenmäntel raincoat, "
    "f Jacke Jacken jacket, f Winterjacke Winterjacken winter_jacket, n Hemd Hemden shirt",
    "opening": "f Tür Türen door, f Haustür Haustüren front_door, n Fenster Fenster window",
    "animal": "m Hund Hunde dog, f Katze Katzen cat, n Pferd Pferde horse, m Vogel Vögel bird",
}

# By kind of noun: German (/ stem before endings), English
ADJECTIVES = {
    "person animal": "jung young, klug clever",
    "person": "freundlich friendly, höflich polite",
    "text": "interessant interesting, lang long, spannend exciting",
    "food": "frisch fresh, lecker delicious",
    "machine thing clothes animal opening": "klein small, groß big, alt old, schön beautiful",
    "machine thing clothes opening": "rot red, grün green, teuer/teur expensive",
    "mail text": "kurz short, neu new",
}

# German prefix+infinitive | changed stem of du and er | participle (after "ist" with sein) |
# English base [past participle [gerund]] and particle (~ moves, + stays) |
# objects: [preposition+]case:kinds | where: here, shop, to
VERBS = """
lesen | lies | gelesen | read read read | acc:text,mail | here
schreiben | | geschrieben | write wrote written | acc:text,mail | here
kaufen | | gekauft | buy bought bought | acc:text,food,thing,clothes | shop
verkaufen | | verkauft | sell sold sold | acc:text,machine,thing | shop
suchen | | gesucht | look +for | acc:thing,mail,animal | here
finden | | gefunden | find found found | acc:thing,mail,animal | here
sehen | sieh | gesehen | see saw seen | acc:person,animal | here
an+rufen | | angerufen | call | acc:person,family |
ein+laden | läd | eingeladen | invite | acc:person,family |
ab+holen | | abgeholt | pick ~up | acc:person,family | here
mit+bringen | | mitgebracht | bring brought brought | acc:food,text |
auf+machen | | aufgemacht | open | acc:opening,mail |
zu+machen | | zugemacht | close | acc:opening |
weg+werfen | wirf | weggeworfen | throw threw thrown ~away | acc:text,thing |
reparieren | | repariert | repair | acc:machine | here
essen | iss | gegessen | eat ate eaten | acc:food | here
an+ziehen | | angezogen | put put put putting ~on | acc:clothes |
helfen | hilf | geholfen | help | dat:person,family | here
folgen | | ist gefolgt | follow | dat:person,animal |
zu+hören | | zugehört | listen +to | dat:person,family | here
geben | gib | gegeben | give gave given | dat:person,family acc:text,thing,food |
zeigen | | gezeigt | show showed shown | dat:person,family acc:text,machine,animal |
schicken | | geschickt | send sent sent | dat:person,family acc:mail |
warten | | gewartet | wait +for | auf+acc:person,family | here
sprechen | sprich | gesprochen | talk +to | mit+dat:person,family | here
arbeiten | | gearbeitet | work | | here
schlafen | schläf | geschlafen | sleep slept slept | | here
gehen | | ist gegangen | go went gone | | to
fahren | fähr | ist gefahren | drive drove driven | | to
"""

PLACES = {
    "here": "im Garten = in the garden, in der Küche = in the kitchen, zu Hause = at home, "
    "im Park = in the park, am See = by the lake, am Bahnhof = at the station, "
    "in der Schule = at school, in der Stadt = in town",
    "shop": "auf dem Markt = at the market, im Supermarkt = in the supermarket, "
    "in der Stadt = in town",
    "to": "in den Park = to the park, in die Stadt = into town, zum Bahnhof = to the station, "
    "nach Hause = home, ans Meer = to the sea, nach Berlin = to Berlin, nach Wien = to Vienna",
}
DAYS = "am Montag = on Monday, am Freitag = on Friday, am Sonntag = on Sunday, im Mai = in May"
TIMES = {
    "past": "gestern = yesterday, heute Morgen = this morning, letzte Woche = last week, "
    "vor drei Tagen = three days ago, " + DAYS,
    "future": "morgen = tomorrow, heute Abend = this evening, nächste Woche = next week, "
    "in zwei Wochen = in two weeks, " + DAYS,
    "now": "jetzt = now, heute = today",
    "habit": "jeden Tag = every day, jeden Morgen = every morning, im Sommer = in summer",
    "frequency": "oft = often, immer = always, nie = never, manchmal = sometimes",
}
MANNERS = "schnell = quickly, langsam = slowly, vorsichtig = carefully, allein = alone"
STATES = "müde = tired, krank = ill, glücklich = happy, sehr nervös = very nervous"
OPINIONS = """
Ich glaube, dass | I think that | .
Ich bin sicher, dass | I am sure that | .
Wir hoffen, dass | We hope that | .
Es ist schade, dass | It is a pity that | .
Ich weiß nicht, ob | I do not know whether | .
Weißt du, ob | Do you know whether | ?
Können Sie mir sagen, ob | Can you tell me whether | ?
"""
# German | English, or what it says and inflects
MODALS = """
kann kannst kann können könnt können | can
muss musst muss müssen müsst müssen | have to
will willst will wollen wollt wollen | want to
soll sollst soll sollen sollt sollen | should
"""
NAMES = "Anna f, Maria f, Julia f, Sophie f, Peter m, Paul m, Stefan m, Martin m"
NUMBERS = "zwei = two, drei = three, vier = four, fünf = five, sechs = six, zehn = ten"


def table(text: str) -> List[List[str]]:
    """The cells of a table."""
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().split("\n")]


def both(text: str) -> List[Tuple[str, str]]:
    """German and English of each entry of a list."""
    entries = (entry.split(" = ") for entry in text.split(", "))
    return [(german, english) for german, english in entries]


class Noun(NamedTuple):
    """A noun of both languages."""

    kind: str
    gender: str
    weak: bool
    german: str
    plural: str
    english: str
    english_plural: str

    def form(self, case: int, plural: bool) -> str:
        """The German form."""
        if plural:
            return self.plural + ("n" if case == DAT and self.plural[-1] not in "ns" else "")
        if self.weak and case != NOM:
            return self.german + ("n" if self.german[-1] in "er" else "en")
        return self.german


class Verb(NamedTuple):
    """A verb of both languages; see `VERBS`."""

    prefix: str
    infinitive: str
    changed: str
    participle: str
    with_sein: bool
    english: List[str]  # base, past, participle, gerund
    particle: str
    objects: List[Tuple[str, int, List[str]]]  # preposition, case, kinds
    where: str

    @property
    def present(self) -> List[str]:
        """The six forms of the German present, without the prefix."""
        stem = self.infinitive[:-2]
        link = "e" if stem[-1] in "td" else ""
        short = self.changed or stem + link
        second = short + ("t" if short[-1] in "sßz" else "st")
        return [
            stem + "e",
            second,
            short + "t",
            self.infinitive,
            stem + link + "t",
            self.infinitive,
        ]

    @property
    def transitive(self) -> bool:
        """Whether its one object is in the accusative."""
        return [each[:2] for each in self.objects] == [("", ACC)]


def third_person(base: str) -> str:
    """The English form for he, she and it."""
    if base == "have":
        return "has"
    return base + ("es" if base.endswith(("s", "sh", "ch", "o")) else "s")


def read_nouns() -> List[Noun]:
    nouns = []
    for kind, entries in NOUNS.items():
        for entry in entries.split(", "):
            gender, german, plural, *english = entry.split()
            singular, several = english[0], english[1] if english[1:] else english[0] + "s"
            forms = (german, plural, singular.replace("_", " "), several.replace("_", " "))
            nouns.append(Noun(kind, gender[0], "*" in gender, *forms))
    return nouns


def read_adjectives() -> Dict[str, List[List[str]]]:
    """German, stem before endings, and English of those that fit each kind of noun."""
    found: Dict[str, List[List[str]]] = {kind: [] for kind in NOUNS}
    for kinds, entries in ADJECTIVES.items():
        for german, english in (entry.split() for entry in entries.split(", ")):
            plain, _, stem = german.partition("/")
            for kind in kinds.split():
                found[kind].append([plain, stem or plain, english])
    return found


def read_verbs() -> List[Verb]:
    found = []
    for german, changed, participle, english, objects, where in table(VERBS):
        prefix, _, infinitive = german.rpartition("+")
        forms = english.split()
        particle = forms.pop() if forms[-1][0] in "~+" else ""
        base = forms[0]
        regular = base.rstrip("e") + "ed"
        gerund = base + "ing" if base[-1] != "e" or base == "see" else base[:-1] + "ing"
        forms += [regular, regular, gerund][len(forms) - 1 :]
        slots = []
        for word in objects.split():
            how, _, kinds = word.partition(":")
            preposition, _, case = how.rpartition("+")
            slots.append((preposition, ACC if case == "acc" else DAT, kinds.split(",")))
        with_sein = participle.startswith("ist ")
        participle = participle[4:] if with_sein else participle
        found.append(
            Verb(prefix, infinitive, changed, participle, with_sein, forms, particle, slots, where)
        )
    return found
