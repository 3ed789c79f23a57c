"""A small MIND: users of three interests, who click the news of their interest."""

import random
from pathlib import Path

from fairseq_plugins.lab.commands import prepare_mind

WORDS = {
    "sports": "match goal team season coach player".split(),
    "finance": "stock bank market price money rate".split(),
    "weather": "rain storm wind snow sun cloud".split(),
}
SIZES = {"train": 60, "test": 16}


def write_news(folder: Path, first: int, count: int, generator: random.Random):
    """news.tsv with IDs from `first`; returns the topic of each ID."""
    folder.mkdir(parents=True)
    lines, topics = [], {}
    for number in range(first, first + count):
        topic = sorted(WORDS)[number % 3]
        title = " ".join(generator.choice(WORDS[topic]) for _ in range(generator.randint(1, 6)))
        topics[f"N{number}"] = topic
        lines.append(f"N{number}\t{topic}\tsub\t{title.title()}!\tabstract\thttps://x\t[]\t[]")
    (folder / "news.tsv").write_text("\n".join(lines) + "\n")
    return topics


def write_behaviors(folder: Path, count: int, topics, generator: random.Random):
    """behaviors.tsv: a history of 0 to 7 news of an interest, and 3 to 9 news that were shown."""
    lines = []
    while len(lines) < count:
        interest = generator.choice(sorted(WORDS))
        of_interest = [name for name, topic in topics.items() if topic == interest]
        history = [generator.choice(of_interest) for _ in range(generator.randint(0, 7))]
        shown = generator.sample(sorted(topics), generator.randint(3, 9))
        marks = [topics[name] == interest for name in shown]
        if 0 < sum(marks) < len(marks):
            shown = [f"{name}-{int(mark)}" for name, mark in zip(shown, marks)]
            columns = [f"{len(lines) + 1}", "U1", "11/13/2019 8:36:57 AM", " ".join(history)]
            lines.append("\t".join([*columns, " ".join(shown)]))
    (folder / "behaviors.tsv").write_text("\n".join(lines) + "\n")


def write(folder: Path) -> None:
    """The folders `train` and `dev`; dev has news of train and others."""
    generator = random.Random(5)
    topics = write_news(folder / "train", 0, 30, generator)
    write_behaviors(folder / "train", SIZES["train"], topics, generator)
    more = write_news(folder / "dev", 25, 12, generator)
    write_behaviors(folder / "dev", SIZES["test"], more, generator)


def prepare(folder: Path, *words) -> Path:
    """The prepared folder of these files."""
    words = ["recommendation", folder / "data", "--train", folder / "train", *words]
    words += ["--test", folder / "dev", "--valid-every", 5, "--workers", 1]
    assert prepare_mind.main([str(word) for word in words]) == 0
    return folder / "data"
