"""Links of the pages lead to files and headings that exist."""

import re

from tests.conftest import ROOT

PAGES = [
    page
    for pattern in ("*.md", "examples/**/*.md", "fairseq_plugins/**/*.md", "tests/**/*.md")
    for page in sorted(ROOT.glob(pattern))
]


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
