"""Amazon: the rating of a review (He & McAuley 2016), as in Fastformer's table 4.

Source: https://jmcauley.ucsd.edu/data/amazon/, `reviews_Electronics_5.json.gz`. The paper names the
domain, Electronics, and not the file: that it is the "5-core" one (users and products with at least
five reviews) is an assumption. Format: a JSON object a line, of which `reviewText` is the text and
`overall`, 1.0 to 5.0, the label.
"""

import json
from pathlib import Path
from typing import Iterator, Optional, Tuple

from fairseq_plugins.lab.corpora import numbered_lines
from fairseq_plugins.preparation.documents import TOO_LONG, Document
from fairseq_plugins.workers import map_lines

RATINGS = (1, 2, 3, 4, 5)


def read_review(line: Tuple[str, Optional[bytes]]) -> Document:
    """The text and rating of a line, or what is wrong with it."""
    place, content = line
    text, label, problem = "", "", TOO_LONG
    if content is not None:
        try:
            review = json.loads(content)
            problem = "" if isinstance(review, dict) else "no JSON object"
        except (ValueError, RecursionError):  # a UnicodeDecodeError is one
            problem = "no JSON (the lines of 'strict' files are)"
    if not problem:
        text, rating = review.get("reviewText"), review.get("overall")
        if not isinstance(text, str) or not text.split():
            problem = "no reviewText"
        elif isinstance(rating, bool) or rating not in RATINGS:
            problem = "overall is not 1, 2, 3, 4 or 5"
        else:
            text, label = " ".join(text.split()), str(int(rating))
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                problem = "not UTF-8: half of a surrogate pair"
    return Document("all", place, text if not problem else "", label, problem)


def reviews(path: Path, workers: int) -> Iterator[Document]:
    """All reviews of a file, compressed or not.

    Raises:
        ConfigurationError: the file cannot be read, or is damaged.
    """
    return map_lines(read_review, numbered_lines(path), workers, "reviews read")
