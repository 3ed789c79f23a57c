"""Translate raw text: one sentence per line in, one translation per line out.

    fairseq-plugins translate --model runs/transformer_ftc < in.txt > out.txt
    fairseq-plugins translate --model runs/transformer_ftc --input in.txt --output out.txt

Text is tokenised and split into subwords as in the prepared folder that the model was trained on.
Lines keep their order, and empty lines stay empty. A line longer than the model's limit is
translated in parts, split after a sentence or a word; a message at the end counts such lines.
--model also takes the output of the command `export`, which needs neither torch nor fairseq.
With --output, a rerun continues what a stopped or killed command wrote.

The JSON object of --json has `translations`, a list with the best first. Each of them has its text,
score, tokens, complete, which is false if it was stopped at the length limit, token_scores, the
log-probabilities of the tokens and of the end symbol, and alignment: for each token, the index of
the subword of the line that the last decoder layer attends to most. For a model whose text was
prepared with --protect it also has `repaired`: the spans that the model omitted or wrote twice.
--html writes a page for browsers that shows which subwords of the source each subword reads.
"""

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins import pretrained
from fairseq_plugins.api import Scored, Translator
from fairseq_plugins.cli import _attention_page, _lines
from fairseq_plugins.cli._lines import TextOut
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import output_file, read_lines, written_whole
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import REQUIRED, option
from fairseq_plugins.search.text import encode
from fairseq_plugins.system.resumable import Group, Result
from fairseq_plugins.text.protection import Protection


@dataclass
class Translate(TextOut):
    """The options of the command."""

    model: Sequence[Path] = option(
        REQUIRED,
        "a checkpoint or a folder with checkpoint_best.pt (several form an ensemble), an exported "
        "model, or a bundled model, unless a file has its name: " + ", ".join(pretrained.names()),
        metavar="DIR",
    )
    max_len: int | None = option(
        None, "the maximum length of a translation in subwords (default: 1.2 times the subwords of "
        "the line plus 10, or more where the training data needs it)", least=1,
    )  # fmt: skip
    prefixes: Path | None = option(
        None, "a file with a line for each input line: text that its translation must begin with, "
        "or an empty line", metavar="FILE",
    )  # fmt: skip
    terms: Path | None = option(
        None, "a file with a source term, a tab and its target term in each line: a translation of "
        "the one gets the other; for models of data that was prepared with --terms, and for "
        "checkpoints", metavar="FILE",
    )  # fmt: skip
    check_spans: bool = option(
        False, "count translations that lack a tag, URL, number or other text that "
        "prepare-translation --protect would have protected",
    )  # fmt: skip
    html: Path | None = option(
        None, "also write a page that shows the attention of each translation to its source; a "
        "stopped command is then not continued", metavar="FILE",
    )  # fmt: skip


def as_object(translation: Scored) -> dict[str, Any]:
    """Without `repaired` if nothing is protected, and with the alignment for the attention."""
    found = {**translation._asdict(), "attention": None, "alignment": translation.alignment}
    return {name: value for name, value in found.items() if value is not None}


def load(args: Translate) -> Callable[[Group], Result]:
    """Load the model; returns what translates lines, or pairs of lines and prefixes."""
    translator = Translator(args.model, terms=args.terms, **args.of_model())
    if (longest := args.max_len) is not None:
        translator.max_length = lambda source_length: longest
    protection = translator.processor.protection or Protection()
    aligned = args.json or args.html is not None
    parts = (
        f"lines over the model's limit of {translator.max_source:,} subwords got translated in "
        "parts"
    )
    stopped = "translations reached the length limit and may be cut off"
    repaired = "translations lacked protected text or had it twice, and got repaired"
    lacking = "translations lacked a tag, URL or other text of their source"
    without = "translations lacked a target term of --terms"

    def translate(group: Group) -> Result:
        paired = args.prefixes is not None
        lines, prefixes = zip(*group.lines) if paired else (group.lines, None)
        found = translator.hypotheses(lines, prefixes, True, group.first, aligned=aligned)
        texts = [hypotheses[0].text for hypotheses in found]
        if args.json:
            objects = [{"translations": [as_object(h) for h in each]} for each in found]
            texts = [json.dumps(each, ensure_ascii=False) for each in objects]
        notes = {
            message: [group.first + number for number in numbers]
            for message, numbers in ((parts, translator.split), (stopped, translator.cut_off))
        }
        notes.update({message: [] for message in (repaired, lacking, without)})
        sections = []
        for number, (line, (each, *_)) in enumerate(zip(lines, found), group.first + 1):
            wanted = translator.terms.wanted(line) if translator.terms else []
            for message, wrong in (
                (repaired, each.repaired),
                (lacking, args.check_spans and protection.missing_spans(line, each.text)),
                (without, not all(term in each.text for term in wanted)),
            ):
                notes[message] += [number] if wrong else []
            if args.html is not None:
                if each.attention is None:
                    raise ConfigurationError(
                        f"--html {args.html}: remove it, because the model "
                        f"{translator.engine.name} returns no attention"
                    )
                source = encode(translator.processor, line)
                weights = each.attention[0].tolist() if len(each.attention) == 1 else []
                words = line, each.text, source, each.tokens, weights
                sections.append(_attention_page.section(number, *words))
        return Result(texts, notes, sections)

    return translate


def with_prefixes(
    path: Path, lines: Iterator[str], first: int, end: int | None
) -> Iterator[tuple[str, str]]:
    """Pair the lines from `first` to `end` with those of a file."""
    prefixes = itertools.islice(read_lines(path), first, end)
    for line, prefix in itertools.zip_longest(lines, prefixes):
        if line is None or prefix is None:
            raise ConfigurationError(
                f"--prefixes {path} has {'more' if line is None else 'fewer'} lines than the "
                "input: give one for each line, empty for none"
            )
        yield line, prefix


@command
def main(args: Translate) -> int:
    _lines.check_files(args)
    page = None if args.html is None else output_file("--html", args.html)
    pair = None if args.prefixes is None else functools.partial(with_prefixes, args.prefixes)
    with contextlib.ExitStack() as stack:
        html = stack.enter_context(written_whole(page)) if page is not None else None
        if html is not None:
            html.write(_attention_page.HEAD)
        begin = functools.partial(load, args)
        return _lines.convert(args, begin, "translated", "lines", pair, html)
