"""Stories are read completely, and a broken one is named."""

import hashlib

import pytest

from fairseq_plugins.data.readers import Unusable
from fairseq_plugins.data.stories import parse_story, read_ids
from fairseq_plugins.errors import ConfigurationError

STORY = (
    "LONDON, England (CNN) -- Rain fell\n\nIt Stopped.\n\n\n"
    "@highlight\n\nRain fell in London\n\n@highlight\n\nIt stopped ."
)


def test_article_and_highlights():
    article, highlights = parse_story(STORY.encode())
    assert article == ["LONDON, England (CNN) -- Rain fell.", "It Stopped."]
    assert highlights == ["Rain fell in London .", "It stopped ."]


@pytest.mark.parametrize(
    "content, problem",
    [
        (b"", "empty"),
        (b"  \n\n@highlight\n\n", "empty"),
        (b"@highlight\n\nRain fell", "no article"),
        (b"Rain fell.\n\n@highlight\n\n", "no highlights"),
        (b"Rain f\xe9ll.\n\n@highlight\n\nx", "byte 6 is not UTF-8"),
    ],
)
def test_problems(content, problem):
    with pytest.raises(Unusable, match=f"^{problem}$"):
        parse_story(content)


def test_line_ends_of_any_system_and_a_byte_order_mark():
    windows = ("\ufeff" + STORY.replace("\n", "\r\n")).encode()
    assert parse_story(windows) == parse_story(STORY.encode())


def test_ids_from_urls_names_and_ids(tmp_path):
    url = "http://web.archive.org/web/2015id_/http://www.cnn.com/rain"
    path = tmp_path / "ids.txt"
    path.write_text(url + "\nabc.story\r\n\ndef\n")
    assert read_ids(path) == [hashlib.sha1(url.encode()).hexdigest(), "abc", "def"]
    path.write_text("abc\nnot an id\n")
    with pytest.raises(ConfigurationError, match="ids.txt, line 2: 'not an id'"):
        read_ids(path)
    path.write_text("\n")
    with pytest.raises(ConfigurationError, match="empty"):
        read_ids(path)
