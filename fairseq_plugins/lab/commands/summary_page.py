"""Write a page to read: documents, their references and summaries.

    head -5 test.source > documents.txt
    fairseq-plugins summarize --model RUN --json --input documents.txt --output found.json
    fairseq-plugins summary-page documents.txt test.target found.json > page.md

The page is Markdown: each document with its reference (from the same line of the second file), its
first sentence, and the summary. Subwords that the model copied are in bold.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_lines
from fairseq_plugins.lab.summary_page import section
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import argument
from fairseq_plugins.search.text import Summary


@dataclass
class SummaryPage(Command):
    """The options of the command."""

    documents: Path = argument("a file with one document per line", "DOCUMENTS")
    references: Path = argument("a file with one summary per line", "REFERENCES")
    summaries: Path = argument("what summarize --json wrote", "SUMMARIES")


@command
def main(args: SummaryPage) -> None:
    documents, summaries = list(read_lines(args.documents)), list(read_lines(args.summaries))
    references = list(read_lines(args.references))
    if len(documents) != len(summaries) or len(references) < len(documents):
        raise ConfigurationError(
            f"{args.documents} has {len(documents):,} lines, {args.references} "
            f"{len(references):,} and {args.summaries} {len(summaries):,}: give one summary and "
            "one reference for each document"
        )
    for number, texts in enumerate(zip(documents, references, summaries), 1):
        document, reference, line = texts
        try:
            stored = json.loads(line)
            stored.pop("summaries", None)  # of --nbest
            summary = Summary(**stored)
        except (AttributeError, TypeError, ValueError):
            raise ConfigurationError(
                f"{args.summaries}, line {number}: not of summarize --json: add --json there"
            ) from None
        print(section(number, document, reference, summary) + "\n")
