"""MIND: news of Microsoft News and who clicked them (Wu et al., ACL 2020).

Source: https://msnews.github.io, MINDlarge_train and MINDlarge_dev. `news.tsv` has 8 columns: ID,
category, subcategory, title, abstract, address, and the entities of title and abstract.
`behaviors.tsv` has 5: impression, user, time, the user's clicked news (IDs, the last one latest),
and the news that were shown, each ID with -1 if it was clicked and -0 if not. The released test
set lacks these marks.

The release has no text bodies, which Fastformer's topic classification reads (505 words a text).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_plugins.data.readers import Example
from fairseq_plugins.lab.corpora import Row, rows

NEWS, BEHAVIORS = "news.tsv", "behaviors.tsv"
NEWS_COLUMNS, BEHAVIOR_COLUMNS = 8, 5


def read_news(path: Path, known: set[str]) -> Iterator[Row]:
    """The lines of a file, without those of an ID that is known; extends these."""
    for row in rows(path, NEWS_COLUMNS):
        if row.problem:
            yield row
        elif row.columns[0] not in known:
            known.add(row.columns[0])
            yield row


def topics(paths: Sequence[Path], bodies: Path | None) -> Iterator[Example]:
    """Title, abstract and, where there is a file of them, body of each news, and its category.

    Args:
        paths: files news.tsv.
        bodies: a file of ID, tab and body; None for texts without one.

    Raises:
        ConfigurationError: a file cannot be read, or is damaged.
    """
    body_of: dict[str, str] = {}
    for row in rows(bodies, 2) if bodies is not None else ():
        if row.problem:
            yield Example("all", row.place, "", "", row.problem)
        else:
            body_of[row.columns[0]] = row.columns[1]
    known = set[str]()
    for row in (row for path in paths for row in read_news(path, known)):
        if row.problem:
            yield Example("all", row.place, "", "", row.problem)
            continue
        name, category, _, title, abstract = row.columns[:5]
        body, problem = body_of.get(name, ""), ""
        text = " ".join(f"{title} {abstract} {body}".split())
        if len(category.split()) != 1:
            problem = "no category of one word"
        elif bodies is not None and not body.strip():
            problem = "no body"
        elif not text:
            problem = "no text"
        yield Example("all", row.place, "" if problem else text, category, problem)


# indices of the news that a user had clicked and was shown, and which of these were clicked
Impression = tuple[list[int], list[int], list[bool]]


def read_impression(row: Row, numbers: dict[str, int]) -> Impression:
    """A line of behaviors.tsv.

    Args:
        row: the line.
        numbers: the index of each news by its ID.

    Raises:
        ValueError: the line cannot be used; the message begins with a reason that others share.
    """
    if row.problem:
        raise ValueError(row.problem)
    shown, clicked = [], []
    for word in row.columns[4].split():
        name, _, mark = word.rpartition("-")
        if mark not in ("0", "1") or not name:
            raise ValueError(f"no label, -0 or -1: {word}")
        shown.append(name)
        clicked.append(mark == "1")
    history = row.columns[3].split()
    unknown = [name for name in (*history, *shown) if name not in numbers]
    if unknown:
        raise ValueError(f"not in {NEWS}: {unknown[0]}")
    if not any(clicked):
        raise ValueError("no click")
    if all(clicked):
        raise ValueError("no news without a click")
    return [numbers[n] for n in history], [numbers[n] for n in shown], clicked
