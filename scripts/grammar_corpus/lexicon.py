"""The words of the grammar, as tables: nouns, verbs, places, times, numbers."""

from typing import Tuple

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
