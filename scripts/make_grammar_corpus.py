#!/usr/bin/env python3
"""Write a small German-English parallel corpus, drawn from a synchronous grammar.

Every sentence pair is generated from one structure that is spelled out twice, once by German
rules and once by English ones. The grammar is small, but it holds what makes this language pair
more than a word-by-word task: verb-second and verb-final clauses, separable verbs, modals,
perfect, passive, case and gender agreement, fronted phrases with inversion, negation against
do-support, questions, relative clauses, pronouns that follow the German gender, plurals, numbers,
the order of time, manner and place, and compounds.

    python scripts/make_grammar_corpus.py OUT_DIR [--pairs 10000] [--seed 1]

writes ``train.de train.en valid.de valid.en test.de test.en``. No German sentence occurs twice,
and no sentence of a split, German or English, occurs in another split. The same arguments give
the same bytes on every Python from 3.8 on.
"""

import argparse
import os
import random
import re
import sys
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar

T = TypeVar("T")

# --------------------------------------------------------------------------------------------
# Lexicon
# --------------------------------------------------------------------------------------------

# German singular, gender (* = weak declension), German plural (- = none), English singular
# [, irregular plural], kinds. The first kind decides which adjectives fit.
NOUNS = """
Lehrer | m | Lehrer | teacher | person
Lehrerin | f | Lehrerinnen | teacher | person
Student | m* | Studenten | student | person
Studentin | f | Studentinnen | student | person
Arzt | m | Ärzte | doctor | person
Ärztin | f | Ärztinnen | doctor | person
Nachbar | m* | Nachbarn | neighbour | person own
Nachbarin | f | Nachbarinnen | neighbour | person own
Freund | m | Freunde | friend | person own
Freundin | f | Freundinnen | friend | person own
Kollege | m* | Kollegen | colleague | person own
Kollegin | f | Kolleginnen | colleague | person own
Kunde | m* | Kunden | customer | person
Kundin | f | Kundinnen | customer | person
Mann | m | Männer | man, men | person
Frau | f | Frauen | woman, women | person
Junge | m* | Jungen | boy | person
Kind | n | Kinder | child, children | person
Gast | m | Gäste | guest | person
Bruder | m | Brüder | brother | family own sibling
Schwester | f | Schwestern | sister | family own sibling
Sohn | m | Söhne | son | family own
Tochter | f | Töchter | daughter | family own
Tante | f | Tanten | aunt | family own
Onkel | m | Onkel | uncle | family own
Vater | m | - | father | family own
Mutter | f | - | mother | family own
Großvater | m | - | grandfather | family own
Großmutter | f | - | grandmother | family own
Buch | n | Bücher | book | text goods item gift
Kochbuch | n | Kochbücher | cookbook | text goods item gift
Kinderbuch | n | Kinderbücher | children's book | text goods item gift
Wörterbuch | n | Wörterbücher | dictionary | text goods item
Zeitung | f | Zeitungen | newspaper | text goods item
Roman | m | Romane | novel | text goods item gift writing
Brief | m | Briefe | letter | text item writing mail
Liebesbrief | m | Liebesbriefe | love letter | text item writing mail
Bericht | m | Berichte | report | text item writing mail
Reisebericht | m | Reiseberichte | travel report | text item writing
Apfel | m | Äpfel | apple | food goods
Ei | n | Eier | egg | food goods soup
Kuchen | m | Kuchen | cake | food goods cake
Apfelkuchen | m | Apfelkuchen | apple cake | food goods cake
Schokoladenkuchen | m | Schokoladenkuchen | chocolate cake | food goods cake
Suppe | f | Suppen | soup | food soup
Tomatensuppe | f | Tomatensuppen | tomato soup | food soup
Gemüsesuppe | f | Gemüsesuppen | vegetable soup | food soup
Käsebrot | n | Käsebrote | cheese sandwich, cheese sandwiches | food goods
Salat | m | Salate | salad | food goods
Kartoffelsalat | m | Kartoffelsalate | potato salad | food goods
Fahrrad | n | Fahrräder | bicycle | thing goods machine washable
Auto | n | Autos | car | thing goods machine washable
Computer | m | Computer | computer | thing goods machine
Lampe | f | Lampen | lamp | thing goods machine heavy
Schreibtischlampe | f | Schreibtischlampen | desk lamp | thing goods machine
Uhr | f | Uhren | clock | thing goods machine gift
Armbanduhr | f | Armbanduhren | wristwatch, wristwatches | thing goods machine item gift
Gitarre | f | Gitarren | guitar | thing goods machine heavy
Stuhl | m | Stühle | chair | thing goods machine heavy
Gartenstuhl | m | Gartenstühle | garden chair | thing goods machine heavy
Tisch | m | Tische | table | thing goods machine heavy
Küchentisch | m | Küchentische | kitchen table | thing goods machine heavy
Tasche | f | Taschen | bag | thing goods item heavy
Handtasche | f | Handtaschen | handbag | thing goods item gift
Koffer | m | Koffer | suitcase | thing goods item heavy
Schlüssel | m | Schlüssel | key | thing item
Autoschlüssel | m | Autoschlüssel | car key | thing item
Regenschirm | m | Regenschirme | umbrella | thing goods item gift
Hut | m | Hüte | hat | thing goods item clothes gift
Mantel | m | Mäntel | coat | thing goods item clothes washable
Regenmantel | m | Regenmäntel | raincoat | thing goods item clothes washable
Jacke | f | Jacken | jacket | thing goods item clothes washable
Winterjacke | f | Winterjacken | winter jacket | thing goods item clothes washable
Kleid | n | Kleider | dress, dresses | thing goods clothes washable gift
Hemd | n | Hemden | shirt | thing goods clothes washable gift
Bild | n | Bilder | picture | thing goods gift picture
Paket | n | Pakete | parcel | thing item heavy mail openable
Tür | f | Türen | door | opening openable
Haustür | f | Haustüren | front door | opening openable
Garagentür | f | Garagentüren | garage door | opening openable
Fenster | n | Fenster | window | opening openable
Küchenfenster | n | Küchenfenster | kitchen window | opening openable
Zimmer | n | Zimmer | room | room
Wohnzimmer | n | - | living room | room
Schlafzimmer | n | Schlafzimmer | bedroom | room
Küche | f | - | kitchen | room
Garage | f | - | garage | room
Keller | m | - | cellar | room
Hund | m | Hunde | dog | animal pet
Katze | f | Katzen | cat | animal pet
Pferd | n | Pferde | horse | animal
Vogel | m | Vögel | bird | animal
Zug | m | Züge | train | vehicle
Bus | m | Busse | bus, buses | vehicle
Film | m | Filme | film | event
Konzert | n | Konzerte | concert | event
Kurs | m | Kurse | course | event
Kirche | f | Kirchen | church, churches | building
Brücke | f | Brücken | bridge | building
Museum | n | Museen | museum | building
Hotel | n | Hotels | hotel | building
Theater | n | Theater | theatre | building
"""

# German, stem before an ending, comparative; English, comparative; kinds of noun it fits
ADJECTIVES = """
alt | alt | älter | old | older | person text thing animal opening building
jung | jung | jünger | young | younger | person animal
klein | klein | kleiner | small | smaller | thing animal food opening room building
groß | groß | größer | big | bigger | thing animal food opening room building
neu | neu | neuer | new | newer | text thing opening
schön | schön | schöner | beautiful | more beautiful | thing animal building
teuer | teur | teurer | expensive | more expensive | thing
billig | billig | billiger | cheap | cheaper | thing
schwer | schwer | schwerer | heavy | heavier | thing opening
rot | rot | - | red | - | thing opening
blau | blau | - | blue | - | thing opening
grün | grün | - | green | - | thing opening
schwarz | schwarz | - | black | - | thing animal
weiß | weiß | - | white | - | thing animal opening
freundlich | freundlich | freundlicher | friendly | friendlier | person
nett | nett | netter | nice | nicer | person
klug | klug | klüger | clever | cleverer | person animal
höflich | höflich | höflicher | polite | more polite | person
interessant | interessant | interessanter | interesting | more interesting | text event
langweilig | langweilig | langweiliger | boring | more boring | text event
spannend | spannend | spannender | exciting | more exciting | text event
lang | lang | länger | long | longer | text event
kurz | kurz | kürzer | short | shorter | text event
frisch | frisch | frischer | fresh | fresher | food
lecker | lecker | leckerer | delicious | more delicious | food
kaputt | kaputt | - | broken | - | machine
"""

# What can be too much of a thing, and why one wants it
FAULTS = ("klein", "groß", "teuer", "schwer", "lang", "kurz", "langweilig", "alt")
MERITS = ("schön", "billig", "interessant", "spannend", "lecker", "frisch")

# German: prefix+infinitive | changed stem of du and er | participle (after "ist" if the perfect is
# formed with sein) | English: base [past participle [gerund]] and particle (~ moves, + stays) |
# objects | kinds of place | manners | flags: state (no progressive), point (no present)
VERBS = """
lesen | lies | gelesen | read read read | acc:text | quiet | langsam allein |
schreiben | | geschrieben | write wrote written | acc:writing | quiet | langsam |
kaufen | | gekauft | buy bought bought | acc:goods | shop | |
verkaufen | | verkauft | sell sold sold | acc:goods | shop | |
suchen | | gesucht | look +for | acc:item,animal | any | |
finden | | gefunden | find found found | acc:item,animal | any | | point
verlieren | | verloren | lose lost lost | acc:item | any | | point
vergessen | vergiss | vergessen | forget forgot forgotten forgetting | acc:item | any | | point
sehen | sieh | gesehen | see saw seen | acc:person,animal | any | | point
besuchen | | besucht | visit | acc:person,family | city | |
kennen+lernen | | kennengelernt | meet met met | acc:person | any | | point
an+rufen | | angerufen | call | acc:person,family | | |
ein+laden | läd | eingeladen | invite | acc:person,family | | |
ab+holen | | abgeholt | pick ~up | acc:person,family,mail | station | |
mit+bringen | | mitgebracht | bring brought brought | acc:food,gift | | |
auf+machen | | aufgemacht | open | acc:openable | | langsam vorsichtig leise |
zu+machen | | zugemacht | close | acc:openable | | langsam vorsichtig leise |
ein+packen | | eingepackt | pack | acc:clothes,gift | | schnell |
weg+werfen | wirf | weggeworfen | throw threw thrown ~away | acc:item | | |
auf+räumen | | aufgeräumt | tidy ~up | acc:room | | schnell |
reparieren | | repariert | repair | acc:machine | home | schnell allein vorsichtig |
waschen | wäsch | gewaschen | wash | acc:washable | home | schnell vorsichtig |
tragen | träg | getragen | carry | acc:heavy | | vorsichtig allein |
essen | iss | gegessen | eat ate eaten | acc:food | eat | schnell langsam |
backen | | gebacken | bake | acc:cake | kitchen | allein |
kochen | | gekocht | cook | acc:soup | kitchen | allein |
an+probieren | | anprobiert | try ~on | acc:clothes | shop | |
an+ziehen | | angezogen | put put put putting ~on | acc:clothes | | schnell |
aus+leihen | | ausgeliehen | borrow | acc:text,machine | | |
malen | | gemalt | paint | acc:picture | home | langsam |
brauchen | | gebraucht | need | acc:goods | | | state
kennen | | gekannt | know knew known | acc:person | | | state
helfen | hilf | geholfen | help | dat:person,family | home | |
danken | | gedankt | thank | dat:person,family | | |
antworten | | geantwortet | answer | dat:person,family | | schnell leise |
gratulieren | | gratuliert | congratulate | dat:person,family | | |
folgen | | ist gefolgt | follow | dat:person,animal | | schnell leise vorsichtig |
zu+hören | | zugehört | listen +to | dat:person,family | any | |
geben | gib | gegeben | give gave given | dat:person,family acc:item | | | point
schenken | | geschenkt | give gave given | dat:person,family acc:gift | | | point
zeigen | | gezeigt | show showed shown | dat:person,family acc:goods | | |
schicken | | geschickt | send sent sent | dat:person,family acc:mail | | |
leihen | | geliehen | lend lent lent | dat:person,family acc:text,machine | | | point
bringen | | gebracht | bring brought brought | dat:person,family acc:item,food | | |
warten | | gewartet | wait +for | auf+acc:person,family,vehicle | station | |
denken | | gedacht | think thought thought +of | an+acc:person,family | | |
sprechen | sprich | gesprochen | talk +to | mit+dat:person,family | any | leise laut |
träumen | | geträumt | dream +of | von+dat:person,animal | | |
arbeiten | | gearbeitet | work | | work | allein |
schlafen | schläf | geschlafen | sleep slept slept | | sleep | |
spielen | | gespielt | play | with | play | leise laut allein |
tanzen | | getanzt | dance | with | play | |
singen | | gesungen | sing sang sung | with | any | leise laut |
lernen | | gelernt | study | with | quiet | allein |
wohnen | | gewohnt | live | | city | | state
gehen | | ist gegangen | go went gone | near | | |
laufen | läuf | ist gelaufen | run ran run running | near | | schnell |
fahren | fähr | ist gefahren | go went gone | far | | |
reisen | | ist gereist | travel travelled travelled travelling | town | | |
fliegen | | ist geflogen | fly flew flown | town | | |
um+ziehen | | ist umgezogen | move | town | | | point
"""

# What one goes somewhere for
ERRANDS = (
    "buy sell read borrow visit help thank congratulate look pick wait talk send study".split()
)

# Verbs that go with a time of the clock, and who or what does them
CLOCK_VERBS = """
ab+fahren | fähr | ist abgefahren | leave left left | vehicle
an+kommen | | ist angekommen | arrive | vehicle people
an+fangen | fäng | angefangen | begin began begun beginning | event
auf+hören | | aufgehört | end | event
auf+stehen | | ist aufgestanden | get got got getting +up | people
ein+schlafen | schläf | ist eingeschlafen | fall fell fallen +asleep | people
zurück+kommen | | ist zurückgekommen | come came come ~back | people
"""

PLACES = """
im Garten | in the garden | home play quiet work eat
in der Küche | in the kitchen | home kitchen eat quiet
zu Hause | at home | home kitchen work quiet eat sleep
im Wohnzimmer | in the living room | quiet sleep play
im Park | in the park | play quiet eat
am Strand | on the beach | play quiet sleep
am See | by the lake | play quiet
vor dem Haus | in front of the house | play home
hinter dem Haus | behind the house | play home
neben der Kirche | next to the church | play
im Zug | on the train | quiet sleep eat
in der Schule | at school | play eat
in der Bibliothek | in the library | quiet work
im Büro | in the office | work eat
im Krankenhaus | in the hospital | work
auf dem Markt | at the market | shop work
in der Stadt | in town | shop work
im Supermarkt | in the supermarket | shop work
im Kaufhaus | in the department store | shop work
am Bahnhof | at the station | station
am Flughafen | at the airport | station work
im Hotel | at the hotel | sleep work eat
in Berlin | in Berlin | city
in Hamburg | in Hamburg | city
in Wien | in Vienna | city
in München | in Munich | city
in Köln | in Cologne | city
auf dem Land | in the country | city
"""

DIRECTIONS = """
in den Park | to the park | near
in die Bibliothek | to the library | near
ins Kino | to the cinema | near
ins Theater | to the theatre | near
auf den Markt | to the market | near
zur Schule | to school | near
zum Arzt | to the doctor | near
in die Stadt | into town | near far
zum Bahnhof | to the station | near far
zum Flughafen | to the airport | far
ins Büro | to the office | near far
nach Hause | home | near far
ans Meer | to the sea | far
in die Berge | to the mountains | far
nach Berlin | to Berlin | far town
nach Hamburg | to Hamburg | far town
nach Wien | to Vienna | far town
nach München | to Munich | far town
nach Köln | to Cologne | far town
"""

# now: present in German, progressive in English; day: goes with a time of the clock
TIMES = """
gestern | yesterday | past day
gestern Abend | yesterday evening | past
heute Morgen | this morning | past day
letzte Woche | last week | past
letztes Jahr | last year | past
am Wochenende | at the weekend | past future
am Montag | on Monday | past future day
am Dienstag | on Tuesday | past future day
am Mittwoch | on Wednesday | past future day
am Donnerstag | on Thursday | past future day
am Freitag | on Friday | past future day
am Samstag | on Saturday | past future day
am Sonntag | on Sunday | past future day
im Mai | in May | past future
im August | in August | past future
morgen | tomorrow | future day
übermorgen | the day after tomorrow | future day
heute Abend | this evening | future
nächste Woche | next week | future
nächstes Jahr | next year | future
jetzt | now | now
gerade | right now | now
heute | today | now past
jeden Tag | every day | habit day
jeden Morgen | every morning | habit
jede Woche | every week | habit
jeden Sonntag | every Sunday | habit day
im Sommer | in summer | habit
im Winter | in winter | habit
"""

FREQUENCIES = """
oft | often
immer | always
nie | never
manchmal | sometimes
selten | rarely
meistens | usually
"""

MANNERS = {
    "langsam": "slowly",
    "schnell": "quickly",
    "vorsichtig": "carefully",
    "leise": "quietly",
    "laut": "loudly",
    "allein": "alone",
}

MEANS = """
mit dem Zug | by train
mit dem Bus | by bus
mit dem Auto | by car
mit dem Fahrrad | by bicycle
"""

# What somebody is or has: German verb, predicate, negated | English verb, predicate, negated
STATES = """
sein | müde | nicht müde | be | tired | not tired
sein | krank | nicht krank | be | ill | not ill
sein | glücklich | nicht glücklich | be | happy | not happy
sein | zu Hause | nicht zu Hause | be | at home | not at home
sein | sehr nervös | nicht sehr nervös | be | very nervous | not very nervous
sein | im Urlaub | nicht im Urlaub | be | on holiday | not on holiday
haben | Hunger | keinen Hunger | be | hungry | not hungry
haben | Durst | keinen Durst | be | thirsty | not thirsty
haben | Angst | keine Angst | be | afraid | not afraid
haben | Zeit | keine Zeit | have | time | no time
haben | Geld | kein Geld | have | money | no money
haben | viel Arbeit | nicht viel Arbeit | have | a lot of work | not much work
"""
# What somebody would have to be or have
WISHES = """
haben | mehr Zeit | have | more time
haben | mehr Geld | have | more money
haben | ein Auto | have | a car
sein | nicht so müde | be | not so tired
sein | nicht krank | be | not ill
sein | jünger | be | younger
sein | zu Hause | be | at home
"""

# Said of "es" and "it": German present, past (verb last) | English present, past, behind "if"
WEATHER = """
regnet | regnete | is raining | was raining | rains
schneit | schneite | is snowing | was snowing | snows
kalt ist | kalt war | is cold | was cold | is cold
sehr heiß ist | sehr heiß war | is very hot | was very hot | is very hot
"""

OPINIONS = """
Ich glaube | I think
Ich weiß | I know
Ich bin sicher | I am sure
Ich freue mich | I am glad
Wir hoffen | We hope
Wir wissen | We know
Es ist schön | It is nice
Es ist schade | It is a pity
Es ist möglich | It is possible
Es stimmt | It is true
Es tut mir leid | I am sorry
Alle wissen | Everybody knows
"""
OPINION_VERBS = """
sagen | say
glauben | think
hoffen | hope
"""
DOUBTS = """
Ich weiß nicht | I do not know | .
Wir wissen nicht | We do not know | .
Weißt du | Do you know | ?
Wissen Sie | Do you know | ?
Können Sie mir sagen | Can you tell me | ?
Ich möchte wissen | I would like to know | .
"""
SPOTS = """
auf dem Tisch | on the table
unter dem Tisch | under the table
neben der Tür | next to the door
unter dem Bett | under the bed
hinter der Lampe | behind the lamp
im Zimmer | in the room
in der Garage | in the garage
"""

NAMES = "Anna f, Maria f, Julia f, Laura f, Sophie f, Peter m, Paul m, Stefan m, Martin m, David m"
TITLED = "Herr Weber m, Herr Fischer m, Frau Schneider f, Frau Wagner f"

ONES_DE = "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()
TEENS_DE = "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split()
TENS_DE = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
ONES_EN = "zero one two three four five six seven eight nine ten eleven twelve".split()
TEENS_EN = "thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS_EN = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def number(value: int) -> Tuple[str, str]:
    """The German and the English word for ``2 <= value <= 99``."""
    if value < 13:
        return ONES_DE[value], ONES_EN[value]
    if value < 20:
        return TEENS_DE[value - 13], TEENS_EN[value - 13]
    tens_de, tens_en = TENS_DE[value // 10 - 2], TENS_EN[value // 10 - 2]
    if value % 10 == 0:
        return tens_de, tens_en
    return ONES_DE[value % 10] + "und" + tens_de, tens_en + "-" + ONES_EN[value % 10]


# --------------------------------------------------------------------------------------------
# Inflection
# --------------------------------------------------------------------------------------------

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


# --------------------------------------------------------------------------------------------
# Clauses
# --------------------------------------------------------------------------------------------

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


# --------------------------------------------------------------------------------------------
# The grammar
# --------------------------------------------------------------------------------------------


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


# --------------------------------------------------------------------------------------------
# The corpus
# --------------------------------------------------------------------------------------------


def splits(
    seed: int, sizes: Dict[str, int], shortest: int = 5, longest: int = 22
) -> Dict[str, List[Pair]]:
    """Draw pairs until every split has its size.

    No German sentence occurs twice, and no sentence, German or English, occurs in two splits.
    Pairs with less than ``shortest`` or more than ``longest`` words on a side are left out.

    Raises:
        ValueError: the grammar does not hold that many different pairs.
    """
    grammar = Grammar(seed)
    used: Set[str] = set()
    corpus: Dict[str, List[Pair]] = {}
    # The held-out splits come first: a longer train split then leaves them as they are
    for split in sorted(sizes, key=lambda name: (name == "train", name)):
        pairs: List[Pair] = []
        english: Set[str] = set()
        german: Set[str] = set()
        misses = 0
        while len(pairs) < sizes[split]:
            pair = grammar.pair()
            words = [len(text.split()) for text in pair]
            if (
                min(words) < shortest
                or max(words) > longest
                or pair.german in german
                or used & set(pair)
            ):
                misses += 1
                if misses > 1000 + 20 * sizes[split]:
                    raise ValueError(
                        f"the grammar has too few different sentences for {sizes[split]} pairs "
                        f"of {split}: ask for fewer with --pairs"
                    )
                continue
            pairs.append(pair)
            german.add(pair.german)
            english.add(pair.english)
        used |= german | english
        corpus[split] = pairs
    return corpus


def write(folder: str, corpus: Dict[str, List[Pair]]) -> None:
    """Write the six files; each appears under its name only when it is complete."""
    os.makedirs(folder, exist_ok=True)
    for split, pairs in corpus.items():
        for index, language in enumerate(("de", "en")):
            path = os.path.join(folder, f"{split}.{language}")
            with open(path + ".tmp", "w", encoding="utf-8", newline="\n") as lines:
                lines.writelines(pair[index] + "\n" for pair in pairs)
            os.replace(path + ".tmp", path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="OUT_DIR", help="where to write train.de ... test.en")
    parser.add_argument("--pairs", type=int, default=10000, help="training pairs (default 10000)")
    parser.add_argument(
        "--held-out", type=int, default=500, help="pairs of valid and of test, each (default 500)"
    )
    parser.add_argument("--seed", type=int, default=1, help="another seed, another corpus")
    args = parser.parse_args()
    for name, value in (("--pairs", args.pairs), ("--held-out", args.held_out)):
        if value < 1:
            parser.error(f"{name} {value}: give at least 1")
    sizes = {"train": args.pairs, "valid": args.held_out, "test": args.held_out}
    try:
        corpus = splits(args.seed, sizes)
        write(args.folder, corpus)
    except (OSError, ValueError) as error:
        sys.exit(f"make_grammar_corpus.py: {error}")
    counts = ", ".join(f"{len(corpus[split])} {split}" for split in ("train", "valid", "test"))
    print(f"wrote {counts} sentence pairs to {args.folder}")


if __name__ == "__main__":
    main()
