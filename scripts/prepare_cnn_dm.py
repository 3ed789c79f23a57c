#!/usr/bin/env python3
"""CNN/DailyMail, from the original archives to the folder that fairseq-train reads.

    python scripts/prepare_cnn_dm.py DIR
    python scripts/prepare_cnn_dm.py DIR --stories cnn_stories.tgz dailymail_stories.tgz
    python scripts/prepare_cnn_dm.py DIR --stories sample.tgz --split-ids train.txt val.txt test.txt

Without --stories both archives (534 MB) are downloaded, without --split-ids the lists of URLs that
say which story is in which split; size and SHA-256 are checked. Stories are read from the archives,
never unpacked to disk. A run that was killed goes on where it was when the same command is given
again; DIR has its name when all is done (until then it is DIR.part).
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_plugins.errors import ConfigurationError  # noqa: E402
from fairseq_plugins.preparation.download import check, digest, fetch  # noqa: E402
from fairseq_plugins.preparation.steps import Preparation  # noqa: E402
from fairseq_plugins.preparation.stories import read_ids  # noqa: E402
from fairseq_plugins.preparation.summarization import (  # noqa: E402
    SPLITS,
    StoryReader,
    add_options,
    check_documents,
    prepare,
    show,
    splits_of_stories,
    story_items,
    summarization_settings,
    tell_left_out,
    write_documents,
)

DOWNLOADS = "downloads"
STORIES_URL = (
    "https://huggingface.co/datasets/cnn_dailymail/resolve/"
    "11343c3752184397d56efc19a8a7cceb68089318/data/"
)
STORIES = {  # bytes, SHA-256
    "cnn_stories.tgz": (
        158577824,
        "e8fbc0027e54e0a916abd9c969eb35f708ed1467d7ef4e3b17a56739d65cb200",
    ),
    "dailymail_stories.tgz": (
        375893739,
        "ad69010002210b7c406718248ee66e65868b9f6820f163aa966369878d14147e",
    ),
}
LISTS_URL = "https://raw.githubusercontent.com/abisee/cnn-dailymail/master/url_lists/"
LISTS = {
    "all_train.txt": "a5cee49f3a6c862c26ce29308236d2a99625ab6c86a43be22d5206b2790d8029",
    "all_val.txt": "81887e982b045083409c6ee838aede8ff4b97291605bcfb21bffc456a16991db",
    "all_test.txt": "c4f5efb5ec2126430a5c156efbd13d0e9c4cb490169e552c38b4a51981a009bd",
}
DOCUMENTS = {"train": 287113, "valid": 13368, "test": 11490}


def read_arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("destination", type=Path, metavar="DIR", help="folder to be made")
    parser.add_argument(
        "--stories",
        type=Path,
        nargs="+",
        metavar="ARCHIVE",
        help="tar archives of .story files that are at hand, instead of downloading",
    )
    parser.add_argument(
        "--split-ids",
        type=Path,
        nargs=3,
        metavar=("TRAIN", "VALID", "TEST"),
        help="files that name the stories of each split, by id (the SHA-1 of the URL) or URL",
    )
    parser.add_argument(
        "--drop-prefix",
        action="store_true",
        help="leave out '(CNN) --' and the byline before an article",
    )
    parser.add_argument(
        "--keep-missing-full-stops",
        action="store_true",
        help="do not add the full stops that are missing after sentences",
    )
    parser.add_argument(
        "--expect",
        metavar="TRAIN,VALID,TEST|any",
        help="documents there must be (default: {}; with --split-ids all that are listed and not "
        "empty)".format(",".join(str(DOCUMENTS[split]) for split in SPLITS)),
    )
    add_options(parser)
    return parser.parse_args(argv)


def expected_documents(option: Optional[str], own_lists: bool) -> Optional[Dict[str, int]]:
    """How many documents each split must have, None if any number will do."""
    if option is None:
        return None if own_lists else DOCUMENTS
    if option == "any":
        return None
    numbers = option.split(",")
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        raise ConfigurationError(
            "--expect '{}': give three numbers with commas between, or any".format(option)
        )
    return dict(zip(SPLITS, map(int, numbers)))


def have_lists(folder: Path) -> List[Path]:
    return [
        fetch(LISTS_URL + name, folder / DOWNLOADS / name, checksum="sha256:" + sha256)
        for name, sha256 in LISTS.items()
    ]


def have_stories(folder: Path) -> List[Path]:
    return [
        fetch(STORIES_URL + name, folder / DOWNLOADS / name, size, "sha256:" + sha256)
        for name, (size, sha256) in STORIES.items()
    ]


def read(folder: Path, args: argparse.Namespace, settings: Dict[str, Any]) -> Dict[str, Any]:
    """Archives to text."""
    own_lists = args.split_ids is not None
    lists = args.split_ids or have_lists(folder)
    archives = args.stories or have_stories(folder)
    if args.stories and not own_lists:  # what has an original's name must be the original
        for path in archives:
            if path.name in STORIES:
                size, sha256 = STORIES[path.name]
                check(path, size, "sha256:" + sha256)
    wanted = splits_of_stories({split: read_ids(path) for split, path in zip(SPLITS, lists)})
    found = write_documents(
        folder,
        story_items(archives, wanted),  # what is left in it then was not found
        StoryReader(settings["add_full_stops"], settings["drop_prefix"]),
        args.workers,
        SPLITS,
        len(wanted),
    )
    tell_left_out(found, folder)
    expected = expected_documents(args.expect, own_lists)
    if args.expect == "any":
        if wanted:
            print("{:,} listed stories were not found".format(len(wanted)), file=sys.stderr)
    else:
        check_documents(found, expected, sorted(wanted))
    return found


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(argv)
    expected_documents(args.expect, bool(args.split_ids))  # a wrong one is told at once
    inputs = {}
    for path in (args.stories or []) + (args.split_ids or []):
        if not path.is_file():
            raise ConfigurationError("{} does not exist, or is not a file".format(path))
        inputs[path.name] = digest(path, "sha256")
    settings = {
        **summarization_settings(args),
        "add_full_stops": not args.keep_missing_full_stops,
        "drop_prefix": args.drop_prefix,
        "expect": args.expect,
        "inputs": inputs,
    }
    with Preparation(args.destination, settings, keep=[DOWNLOADS]) as preparation:
        if not preparation.finished:
            found = preparation.step(
                "read stories", read, preparation.folder, args, preparation.settings
            )
            prepare(preparation, found, args.workers)
    show(args.destination)
    return 0


if __name__ == "__main__":
    sys.exit(main())
