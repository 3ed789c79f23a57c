"""Translate raw text: one sentence per line in, one translation per line out.

    python -m fairseq_plugins translate --model runs/transformer_ftc < in.txt > out.txt
    python -m fairseq_plugins translate --model runs/transformer_ftc --input in.txt --output out.txt

Text is tokenised and split into subwords as in the prepared folder that the model was trained on.
Lines keep their order, and empty lines stay empty. A line longer than the model's limit is
translated in parts, split after a sentence or a word; a message at the end counts such lines.
--model also takes the output of the command `export`, which needs neither torch nor fairseq.

The JSON object of --json has `translations`, a list with the best first. Each of them has its text,
score, tokens, and complete, which is false if it was stopped at the length limit. For a model whose
text was prepared with --protect it also has `repaired`: the spans that the model omitted or wrote
twice. --html writes a page for browsers that shows which subwords of the source each subword reads.
"""

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins import pretrained
from fairseq_plugins.api import Scored, Translator
from fairseq_plugins.cli import _attention_page, _lines
from fairseq_plugins.cli._lines import TextOut
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import output_file, read_lines, written_whole
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import REQUIRED, option
from fairseq_plugins.search.text import encode
from fairseq_plugins.text.protection import missing_spans

Batch = tuple[list[str], list[str] | None, int]  # lines, their prefixes, the first's number


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
    check_spans: bool = option(
        False, "count translations that lack a tag, URL, number or other text that "
        "prepare-translation --protect would have protected",
    )  # fmt: skip
    html: Path | None = option(
        None, "also write a page that shows the attention of each translation to its source; only "
        "for trained models, not for exports", metavar="FILE",
    )  # fmt: skip


class Done(NamedTuple):
    """The translations of some lines; numbers are of lines of the input, from 1."""

    texts: list[str]
    split: list[int]
    cut_off: list[int]
    repaired: list[int]
    lacking: list[int]
    max_source: int
    html: list[str]  # with --html: a section for each line


def as_object(translation: Scored) -> dict[str, Any]:
    """Without `repaired` if nothing is protected."""
    return {name: value for name, value in translation._asdict().items() if value is not None}


def load(args: Translate) -> Callable[[Batch], Done]:
    """Load the model; returns what translates lines, with prefixes."""
    translator = Translator(args.model, **args.of_model())
    if (longest := args.max_len) is not None:
        translator.max_length = lambda source_length: longest
    attention = getattr(translator.engine, "attention", None)
    if args.html is not None and attention is None:
        raise ConfigurationError(
            f"--html {args.html} needs a trained model, because an export does not return its "
            "attention: give --model the folder of a training, or a checkpoint"
        )

    def translate(batch: Batch) -> Done:
        before, (lines, prefixes, first) = translator.lines_seen, batch
        found = translator.hypotheses(lines, prefixes, split=True, first=first)
        texts = [hypotheses[0].text for hypotheses in found]
        if args.json:
            objects = [{"translations": [as_object(h) for h in each]} for each in found]
            texts = [json.dumps(each, ensure_ascii=False) for each in objects]
        split, cut_off = (
            [first + number - before for number in numbers if number > before]
            for numbers in (translator.split, translator.cut_off)
        )
        best = [hypotheses[0] for hypotheses in found]
        repaired = [first + n for n, each in enumerate(best, 1) if each.repaired]
        lacking = []
        if args.check_spans:
            pairs = enumerate(zip(lines, best), 1)
            lacking = [first + n for n, (line, each) in pairs if missing_spans(line, each.text)]
        sections = []
        for number, (line, each) in enumerate(zip(lines, best), first + 1):
            if attention is not None and args.html is not None:
                source = encode(translator.processor, line)
                whole = source and number not in split
                weights = attention(source, each.tokens).tolist() if whole else []
                words = line, each.text, source, each.tokens, weights
                sections.append(_attention_page.section(number, *words))
        numbers = split, cut_off, repaired, lacking
        return Done(texts, *numbers, translator.max_source, sections)

    return translate


@command
def main(args: Translate) -> int:
    _lines.check_files(args)
    page = None if args.html is None else output_file("--html", args.html)
    prefixes = None if args.prefixes is None else iter(list(read_lines(args.prefixes)))
    split: list[int] = []
    cut_off: list[int] = []
    repaired: list[int] = []
    lacking: list[int] = []
    max_source = read = 0

    def with_prefixes(lines: list[str]) -> Batch:
        nonlocal read
        first, read = read, read + len(lines)
        begin = None if prefixes is None else list(itertools.islice(prefixes, len(lines)))
        if begin is not None and len(begin) < len(lines):
            raise ConfigurationError(
                f"--prefixes {args.prefixes} has fewer lines than the input: add an empty line for "
                "each line without a prefix"
            )
        return lines, begin, first

    def run(batches: Iterator[list[str]]) -> Iterator[list[str]]:
        nonlocal max_source
        begin, whole = functools.partial(load, args), map(with_prefixes, batches)
        for done in _lines.in_processes(args, begin, whole):
            split.extend(done.split)
            cut_off.extend(done.cut_off)
            repaired.extend(done.repaired)
            lacking.extend(done.lacking)
            max_source = done.max_source
            if html is not None:
                html.writelines(done.html)
            yield done.texts

    with contextlib.ExitStack() as stack:
        html = stack.enter_context(written_whole(page)) if page is not None else None
        if html is not None:
            html.write(_attention_page.HEAD)
        out = stack.enter_context(_lines.own_output(args.output))
        status = _lines.convert(args, run, out, "translated", "lines")
        if status is None:
            return 1
        if prefixes is not None and next(prefixes, None) is not None:
            raise ConfigurationError(
                f"--prefixes {args.prefixes} has more lines than the input: remove them"
            )
    _lines.tell(
        split,
        f"line(s) longer than {max_source:,} subwords, the model's limit, were translated in parts",
    )
    _lines.tell(cut_off, "translation(s) reached the length limit and may be cut off")
    _lines.tell(repaired, "translation(s) lacked protected text or had it twice, and were repaired")
    _lines.tell(lacking, "translation(s) lack a tag, URL or other text of their source")
    return status
