"""The pages: links lead to files and headings that exist, and commands have known options."""

import argparse
import pkgutil
import re
import shlex
from collections import defaultdict

import pytest

from fairseq_plugins import cli
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options import fairseq_parser, recipes, user_dirs
from fairseq_plugins.options.arguments import split
from tests.conftest import ROOT

PAGES = [
    page
    for pattern in ("*.md", "examples/**/*.md", "fairseq_plugins/**/*.md", "tests/**/*.md")
    for page in sorted(ROOT.glob(pattern))
]
PLACEHOLDERS = {"MIXER": "softmax", "$mixer": "softmax", "MORE": "", "FILE": ""}


def anchors(page):
    """The headings of a page as GitHub names them in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each).lower() for each in headings]
    return {re.sub(r"[^\w\- ]", "", each).replace(" ", "-") for each in plain}


def test_links_and_pictures_lead_somewhere():
    broken, seen = [], 0
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if re.match(r"https?:|mailto:", link):
                continue
            seen += 1
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert seen > 50 and broken == []


def calls():
    """The arguments of each call of this package's commands in a code block, without variables."""
    for page in PAGES:
        text = page.read_text("utf-8").replace("\\\n", " ")
        for line in re.findall(
            r"^    .*(?:python -m fairseq_plugins|fairseq-plugins) (\w.*)$", text, re.M
        ):
            line = re.split(r" #| [|<>] |; ", line)[0].rstrip()
            words = shlex.split(line.rstrip('"') if line.count('"') % 2 else line)
            words = [PLACEHOLDERS.get(word, word) for word in words]
            yield [word for word in words if word and not re.match(r"\$[a-z{]", word)]


class Parsed(Exception):
    pass


def test_names_of_the_package_on_the_pages_exist():
    names = {
        name
        for page in PAGES
        for name in re.findall(r"\bfairseq_plugins(?:\.[A-Za-z_]\w*)+", page.read_text("utf-8"))
    }
    assert len(names) > 2
    for name in sorted(names - {user_dirs.GROUP}):
        assert pkgutil.resolve_name(name), name


def test_commands_of_the_pages_parse(monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def stop(parser, *args, **kwargs):
        parse(parser, *args, **kwargs)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    seen = set()
    for words in calls():
        try:
            with pytest.raises(Parsed):
                cli.main(words)
        except ConfigurationError as error:
            pytest.fail(f"{shlex.join(words)}: {error}")
        seen.add(words[0])
    assert seen > {"train", "evaluate", "reproduce", "benchmark", "export", "prepare-translation"}


def test_recipes_settings_and_options_of_the_pages_are_known():
    """Those that `train` passes to fairseq-train, all of a recipe at once."""
    given = defaultdict(list)
    for words in calls():
        own, extra = split(words)
        if own[0] != "train" or not own[1].islower():
            continue
        recipe = recipes.find(own[1])
        for option, value in zip(own, own[1:]):
            if option == "--settings":
                recipes.find(value, recipes.folders(recipe))
        if not any("$" in word for word in extra):
            criterion = extra[extra.index("--criterion") + 1] if "--criterion" in extra else ""
            given[recipe, criterion] += extra
    assert len(given) > 5
    for (recipe, _), extra in given.items():
        fairseq_parser.parse(["DATA", *recipes.arguments([recipe]), *extra])
