"""Write a page to read: documents, their references and summaries.

    head -5 test.source > documents.txt
    fairseq-plugins summarize --model RUN --json --input documents.txt --output found.json
    fairseq-plugins summary-page documents.txt test.target found.json > page.md

The page is Markdown: each document with its reference (from the same line of the second file), its
first sentence, and the summary. Subwords that the model copied are in bold.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_lines
from fairseq_plugins.lab.summary_page import section
from fairseq_plugins.options.arguments import parser_of
from fairseq_plugins.search.text import Summary


def main(argv: Sequence[str]) -> int:
    parser = parser_of("summary-page", __doc__)
    for name in ("documents", "references", "summaries"):
        parser.add_argument(name, type=Path, metavar=name.upper())
    args = parser.parse_args(argv)
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
    return 0
