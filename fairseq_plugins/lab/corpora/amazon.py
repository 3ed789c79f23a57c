"""Amazon: the rating of a review (He & McAuley 2016), as in Fastformer's table 4.

Source: https://jmcauley.ucsd.edu/data/amazon/, `reviews_Electronics_5.json.gz`. The paper names the
domain, Electronics, and not the file: that it is the "5-core" one (users and products with at least
five reviews) is an assumption. Format: a JSON object a line, of which `reviewText` is the text and
`overall`, 1.0 to 5.0, the label.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fairseq_plugins.data.readers import (
    Example,
    Item,
    Unusable,
    check_encodes,
    numbered_lines,
    parsed,
    text_of,
)
from fairseq_plugins.system.workers import map_lines

RATINGS = (1, 2, 3, 4, 5)


def read_review(item: Item) -> Example:
    """The text and rating of a line; raises `Unusable` for one that has none."""
    line = text_of(item.content)
    try:
        review = json.loads(line)
    except (ValueError, RecursionError):
        raise Unusable("no JSON (the lines of 'strict' files are)") from None
    if not isinstance(review, dict):
        raise Unusable("no JSON object")
    text, rating = review.get("reviewText"), review.get("overall")
    if not isinstance(text, str) or not text.split():
        raise Unusable("no reviewText")
    if isinstance(rating, bool) or rating not in RATINGS:
        raise Unusable("overall is not 1, 2, 3, 4 or 5")
    check_encodes(text)
    return Example(item.split, item.name, " ".join(text.split()), str(int(rating)))


def reviews(path: Path, workers: int) -> Iterator[Example]:
    """All reviews of a file, compressed or not.

    Raises:
        ConfigurationError: the file cannot be read, or is damaged.
    """
    lines = numbered_lines(path)
    items = (Item("all", f"{path.name}:{number}", line) for number, line in lines)
    return map_lines(partial(parsed, read_review), items, workers, "reviews read")
