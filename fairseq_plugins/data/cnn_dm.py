"""CNN/DailyMail: its archives, its splits, and the number of documents in each split."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairseq_plugins.data.download import check, fetch
from fairseq_plugins.data.readers import SPLITS, Corpus, Example, Item
from fairseq_plugins.data.stories import parse_story, read_ids, read_story_files
from fairseq_plugins.data.summarization import summary_of
from fairseq_plugins.errors import ConfigurationError

DOWNLOADS = "downloads"
Files = dict[str, tuple[str, int | None]]  # the SHA-256 of each file, and its bytes
STORIES_URL = (
    "https://huggingface.co/datasets/cnn_dailymail/resolve/"
    "11343c3752184397d56efc19a8a7cceb68089318/data/"
)
LISTS_URL = "https://raw.githubusercontent.com/abisee/cnn-dailymail/master/url_lists/"
STORIES: Files = {
    "cnn_stories.tgz": (
        "e8fbc0027e54e0a916abd9c969eb35f708ed1467d7ef4e3b17a56739d65cb200", 158577824,
    ),
    "dailymail_stories.tgz": (
        "ad69010002210b7c406718248ee66e65868b9f6820f163aa966369878d14147e", 375893739,
    ),
}  # fmt: skip
LISTS: Files = {
    "all_train.txt": ("a5cee49f3a6c862c26ce29308236d2a99625ab6c86a43be22d5206b2790d8029", None),
    "all_val.txt": ("81887e982b045083409c6ee838aede8ff4b97291605bcfb21bffc456a16991db", None),
    "all_test.txt": ("c4f5efb5ec2126430a5c156efbd13d0e9c4cb490169e552c38b4a51981a009bd", None),
}
DOCUMENTS = {"train": 287113, "valid": 13368, "test": 11490}


def read(
    folder: Path,
    stories: Sequence[Path] | None,
    split_ids: Sequence[Path] | None,
    expect: str | None,
) -> Corpus:
    """The stories of archives; downloads the archives and lists that are not given.

    Args:
        folder: where to keep downloads.
        stories: archives, or None for the original ones.
        split_ids: files of ids for train, valid and test, or None for the original ones.
        expect: the value of `--expect`.

    Raises:
        ConfigurationError: a file is missing or differs from the expected one; or, when the
            stories are read, a listed one is missing.
    """
    lists = split_ids or _fetch(folder, LISTS_URL, LISTS)
    archives = stories or _fetch(folder, STORIES_URL, STORIES)
    if stories and not split_ids:  # a file with the name of an original must be the original
        for path in stories:
            if path.name in STORIES:
                sha256, size = STORIES[path.name]
                check(path, "sha256:" + sha256, size)
    wanted: dict[str, str] = {}
    for split, path in zip(SPLITS, lists):
        for name in read_ids(path):
            if name in wanted:
                raise ConfigurationError(
                    f"story {name} is named twice, in {wanted[name]} and in {split}: name each "
                    "story once"
                )
            wanted[name] = split
    total = len(wanted)
    return Corpus(_listed(archives, wanted, expect == "any"), parse_story_file, total)


def _listed(archives: Sequence[Path], wanted: dict[str, str], some: bool) -> Iterator[Item]:
    """The stories that are in `wanted`, which is emptied; `some` may be missing."""
    for name, content in read_story_files(archives):
        split = wanted.pop(name, None)
        if split is not None:
            yield Item(split, name, content)
    if wanted and some:
        print(f"{len(wanted):,} listed stories were not found", file=sys.stderr)
    elif wanted:
        first = ", ".join(sorted(wanted)[:3]) + ", ..." * (len(wanted) > 3)
        raise ConfigurationError(
            f"{len(wanted):,} listed stories are not in the archives ({first}): give all archives "
            "with --stories, or pass --expect any to ignore them"
        )


def parse_story_file(item: Item) -> Example:
    """The example of a `.story` file."""
    article, highlights = parse_story(item.content)
    return Example(item.split, item.name, " ".join(article), summary_of(highlights))


def _fetch(folder: Path, url: str, files: Files) -> list[Path]:
    return [
        fetch(url + name, folder / DOWNLOADS / name, "sha256:" + sha256, size)
        for name, (sha256, size) in files.items()
    ]
