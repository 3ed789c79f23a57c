"""Train models on a teacher's output: its translations or summaries replace those of train.

Sequence-level distillation (Kim & Rush, EMNLP 2016) trains a student on its teacher's output for
the sources of train. The authors report that small students then lose less.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sacrebleu.metrics.bleu import BLEU, BLEUScore

from fairseq_plugins.data import report, summarization, translation
from fairseq_plugins.data.binary import encode, write
from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.data.like import fingerprint
from fairseq_plugins.data.pipeline import TOKENS
from fairseq_plugins.data.readers import RAW, TOO_LONG
from fairseq_plugins.data.report import left_out, table
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.teachers import CUT_OFF, EMPTY, UNKNOWN_WORD, Teachers, Written
from fairseq_plugins.evaluate.translation import bleu_of
from fairseq_plugins.files import (
    copy,
    count_lines,
    digest,
    in_groups,
    read_input,
    read_lines,
    write_columns,
    write_lines,
)
from fairseq_plugins.preparation.steps import Preparation
from fairseq_plugins.prepared_folder import Prepared, dictionaries, needed_files
from fairseq_plugins.progress import progress_bar
from fairseq_plugins.text.languages import is_unspaced, scored_as
from fairseq_plugins.text.moses import Moses
from fairseq_plugins.text.processing import normalise
from fairseq_plugins.text.sentences import is_blank, separate_sentences
from fairseq_plugins.text.subwords import KINDS
from fairseq_plugins.workers import map_lines

KEPT = "text/kept.tsv"  # for each pair of train: its origin, its line there, the teacher's rank
ORIGINAL, TEACHER, EXTRA, BACK = "original", "teacher", "extra", "back-translated"
# of the teacher's text per step; a kill loses at most one step
LINES_PER_STEP = 2000
CHARACTERS_PER_STEP = 1 << 18
WORK = "work"
OPTION = "--processes"  # which sets the number of processes


class DistillationRequest(NamedTuple):
    """What to distill.

    Attributes:
        data: the prepared folder.
        keep: "teacher": the teacher's best text; "nearest": the one of its `nbest` texts nearest to
            the reference by BLEU; "both": the teacher's best and the original.
        nbest: number of texts that the teacher writes per line.
        extra: more source text, one line each.
        back: text of the target language, for which the reverse teacher writes sources.
        tag: whether sources that a teacher wrote begin with a tag (Caswell et al. 2019).
    """

    data: Path
    keep: str = "teacher"
    nbest: int = 1
    extra: Path | None = None
    back: Path | None = None
    tag: bool = True


def distill(
    request: DistillationRequest,
    destination: Path,
    teachers: Teachers,
    reverse: Teachers | None,
    workers: int,
) -> None:
    """Write a prepared folder with the subwords, dictionaries, valid and test of another.

    Args:
        request: what to distill.
        destination: the folder to write.
        teachers: write targets.
        reverse: write sources, for `request.back`.
        workers: processes for everything except the teachers.

    Raises:
        ConfigurationError: a folder or file cannot be used, or `destination` exists with other
            content.
    """
    data = request.data
    prepared = Prepared(data)
    prepared.check_one_direction()
    if reverse is not None and reverse.direction != teachers.direction[::-1]:
        raise ConfigurationError(
            "--reverse {} translates {}-{}, and TEACHER {}-{}: they must be of opposite "
            "directions".format(reverse.names[0], *reverse.direction, *teachers.direction)
        )
    kind: Any = TEXTS[prepared.task](prepared, teachers.direction)
    tag = find_tag(data, kind.source) if reverse is not None and request.tag else None
    # without the folders in DATA: one of them may be `destination`
    files = [path for path in needed_files(data).values() if path.parent == data]
    wanted = {
        **prepared.settings,
        "distilled": fingerprint([*files, *kind.text_files()]),
        "teacher": teachers.digests,
        "keep": request.keep,
        "nbest": request.nbest,
        "search": teachers.search,
        "extra": None if request.extra is None else digest(request.extra),
        "back_translate": None if request.back is None else digest(request.back),
        "reverse": None if reverse is None else reverse.digests,
        "tag": tag,
    }
    with Preparation(destination, wanted, costly=WORK) as preparation:
        if not preparation.finished:
            _Distillation(request, preparation, kind, teachers, reverse, tag, workers).run()


def find_tag(data: Path, language: str) -> str:
    """A word of a dictionary that occurs in no text, as a tag for sources.

    fairseq makes the size of a dictionary a multiple of 8 with such words.

    Raises:
        ConfigurationError: there is no such word.
    """
    path = data / f"dict.{language}.txt"
    for line in read_lines(path):
        if line.startswith("madeupword"):
            return line.rpartition(" ")[0]
    raise ConfigurationError(
        f"--back-translate: {path} has no unused word for the tag of back-translated sources: give "
        "--no-tag, or prepare the data with another --vocab-size"
    )


class Verdict(NamedTuple):
    """What a teacher wrote for a line, against the reference.

    Attributes:
        rank: of the text to keep, from 1; 0 for none.
        problem: what is wrong with the best text; else "".
        best, kept: the counts that give BLEU, of the best text and of the kept one (without one,
            of the reference itself): lengths, and numbers of n-grams matched and written.
    """

    rank: int
    problem: str
    best: list[int]
    kept: list[int]


class Row(NamedTuple):
    """A pair of train: its origin, its line there, both sides, and what is wrong with it.

    A side is text in all forms, or a line or a teacher's text still to be converted. Where a
    teacher wrote for a pair, `target` is the original, and `texts` what it wrote.
    """

    origin: str
    line: int
    source: tuple[str, ...] | str
    target: tuple[str, ...] | str
    texts: Sequence[Written] = ()
    problem: str = ""


class Pairs:
    """The text of a prepared language pair.

    Args:
        prepared: the prepared folder.
        direction: the languages to read and to write.

    Raises:
        ConfigurationError: the folder lacks its text.
    """

    task: Any = translation.Pairs

    def __init__(self, prepared: Prepared, direction: tuple[str, str]) -> None:
        self.data, self.stored = prepared.folder, prepared.settings
        self.settings, self.source, self.target = prepared.processing, *direction
        self.languages = prepared.languages
        self._tokenise = {language: self.settings.tokenise(language) for language in direction}
        for path in self.text_files():
            if not path.is_file():
                raise ConfigurationError(
                    f"{path} is missing: name a folder that a prepare-* command made, with all its "
                    "text"
                )
        self._bleu = self.bleu(sentences=True)
        before = self.settings.tokenised_before
        self._moses = Moses(scored_as(self.target)) if before else None

    def bleu(self, sentences: bool = False) -> BLEU:
        """BLEU of targets, of all or of single sentences."""
        return bleu_of(self.target, self.settings.lowercase, sentences)

    def signature(self) -> str:
        """How BLEU of all sentences was computed."""
        metric = self.bleu()
        metric.corpus_score([""], [[""]])
        return str(metric.get_signature())

    def text_files(self) -> list[Path]:
        """The text of the folder that the teacher reads."""
        return [
            self.data / RAW / f"{split}.{language}"
            for split in ("train", "valid")
            for language in self.languages
        ]

    def written(self, language: str, text: str) -> tuple[str, ...]:
        """A teacher's text, raw and as tokens."""
        return self._tokenise[language].undo(text), text

    def given(self, language: str, line: str) -> tuple[str, ...]:
        """A user's line, raw and as tokens."""
        return normalise(line), self._tokenise[language](line)

    def plain(self, raw: str) -> str:
        """Raw target text, as `evaluate` scores it."""
        return raw if self._moses is None else self._moses.detokenise(raw)

    def judge(self, texts: Sequence[Written], reference: str) -> Verdict:
        """Choose the usable text that is nearest to the reference by BLEU."""
        expected = [self.plain(reference)]
        raw = [self.written(self.target, text.text)[0] for text in texts]
        scores = [self._bleu.corpus_score([self.plain(text)], [expected]) for text in raw]
        counts = list(map(parts_of_bleu, scores))
        usable = [number for number, text in enumerate(texts) if not text.problem]
        if not usable:
            same = self._bleu.corpus_score(expected, [expected])
            return Verdict(0, texts[0].problem, counts[0], parts_of_bleu(same))
        nearest = max(usable, key=lambda number: scores[number].score)
        return Verdict(nearest + 1, texts[0].problem, counts[0], counts[nearest])

    def reason_against(self, source: tuple[str, ...], target: tuple[str, ...]) -> str | None:
        """Why this release would not prepare a pair (in all forms); None to keep it."""
        before = self.settings.tokenised_before
        return Limits.of(self.stored).reason_against(source[-1], target[-1], before)


class Documents(Pairs):
    """The text of a folder that was prepared for summarization."""

    task = summarization.Documents

    def bleu(self, sentences: bool = False) -> BLEU:
        """BLEU of targets, by characters if their script has no spaces: no language is recorded."""
        unspaced = is_unspaced(read_lines(self.data / RAW / f"valid.{self.target}"))
        kind = "char" if unspaced else "13a"
        return BLEU(lowercase=self.settings.lowercase, tokenize=kind, effective_order=sentences)

    def written(self, language: str, text: str) -> tuple[str, ...]:
        return text, text

    def given(self, language: str, line: str) -> tuple[str, ...]:
        return (" ".join(normalise(line).split()),) * 2

    def plain(self, raw: str) -> str:
        return " ".join(separate_sentences(raw))

    def reason_against(self, source: tuple[str, ...], target: tuple[str, ...]) -> str | None:
        return "empty side" if is_blank(source[0]) or is_blank(target[0]) else None


TEXTS = {"translation": Pairs, "summarization": Documents}  # by the task of a prepared folder


class Comparison:
    """What the report says of a teacher's texts for a split, added up line by line."""

    def __init__(self) -> None:
        self.lines = 0
        self.best, self.kept = [0] * 10, [0] * 10
        self.problems: dict[str, int] = Counter()
        self.ranks: dict[int, int] = Counter()

    def add(self, verdict: Verdict) -> None:
        self.lines += 1
        self.best = [a + b for a, b in zip(self.best, verdict.best)]
        self.kept = [a + b for a, b in zip(self.kept, verdict.kept)]
        self.problems[verdict.problem] += 1
        self.ranks[verdict.rank] += 1


@dataclass
class _Distillation:
    """The steps of a distillation."""

    request: DistillationRequest
    preparation: Preparation
    kind: Any
    teachers: Teachers
    reverse: Teachers | None
    tag: str | None
    workers: int

    def __post_init__(self) -> None:
        self.data, self.folder = self.request.data, self.preparation.folder

    def run(self) -> None:
        step, kind, request = self.preparation.step, self.kind, self.request
        model = KINDS[kind.settings.subword]
        learnt = self.data / model.file_name
        step("copy subwords", copy, learnt, self.folder / model.file_name)
        for split, count in (("train", request.nbest), ("valid", 1)):
            self._teach(split, self.teachers, self.data / RAW / f"{split}.{kind.source}", count)
        if request.extra is not None:
            self._teach(EXTRA, self.teachers, request.extra)
        self.teachers.release()
        if request.back is not None and self.reverse is not None:
            self._teach(BACK, self.reverse, request.back)
            self.reverse.release()
        written = step("write pairs", self._write)  # an earlier "write train" kept less
        found = {"train": written["teacher"], "valid": step("compare valid", self._compare_valid)}
        step("binarise", self._binarise)
        step("copy valid and test", self._copy)
        report.write(self.folder, self._report(found, written))
        self.preparation.finish(leave_out=[WORK])

    def _teach(self, name: str, teachers: Teachers, source: Path, count: int = 1) -> None:
        """Let teachers write `count` texts for each line of a file, in steps.

        A line that is too long counts as empty.
        """

        def write(lines: Sequence[str | None], path: Path) -> None:
            found = teachers.write([line or "" for line in lines], count)
            write_lines(path, (json.dumps(texts, ensure_ascii=False) for texts in found))

        done, total = 0, count_lines(source)
        # smoothing=0: the speed is the average, without the lines of earlier runs
        how: dict[str, Any] = {"unit": " lines", "unit_scale": True, "smoothing": 0}
        with progress_bar(description=name, total=total, **how) as bar:
            for lines in in_groups(read_input(source), LINES_PER_STEP, CHARACTERS_PER_STEP):
                first, done = done + 1, done + len(lines)
                step = f"{name}: lines {first:,} to {done:,} of {total:,}"
                if step in self.preparation.results:
                    bar.initial += len(lines)
                path = self.folder / WORK / name / f"{first:010d}.json"
                self.preparation.step(step, write, lines, path, makes=path)
                bar.update(len(lines))

    def _taught(self, name: str) -> Iterator[list[Written]]:
        """The teachers' output for each line of a file."""
        for path in sorted((self.folder / WORK / name).glob("*.json")):
            for line in read_lines(path):
                yield [Written(*each) for each in json.loads(line)]

    def _compare_valid(self) -> dict[str, Any]:
        """Compare the teacher's texts with the references of valid."""
        references = read_lines(self.data / RAW / f"valid.{self.kind.target}")
        lines = zip(self._taught("valid"), references, strict=True)
        found = Comparison()
        judge = self.kind.judge
        how = (self.workers, "compare")
        for verdict in map_lines(lambda line: judge(*line), lines, *how, option=OPTION):
            found.add(verdict)
        return vars(found)

    def _rows(self) -> Iterator[Row]:
        """All pairs of train, and of further text."""
        if self.request.keep == "both":
            for number, sides in enumerate(self._originals(), 1):
                yield Row(ORIGINAL, number, *sides)
        lines = zip(self._originals(), self._taught("train"), strict=True)
        for number, (sides, texts) in enumerate(lines, 1):
            yield Row(TEACHER, number, *sides, texts)
        for name, path in ((EXTRA, self.request.extra), (BACK, self.request.back)):
            further = () if path is None else zip(self._taught(name), read_input(path), strict=True)
            for number, ((text, *_), line) in enumerate(further, 1):
                problem = "empty side" if is_blank(line or "") else text.problem
                problem = TOO_LONG if line is None else problem
                pair = (line or "", text.text) if name == EXTRA else (text.text, line or "")
                yield Row(name, number, *pair, problem=problem)

    def _originals(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The pairs of train in the prepared folder, both sides in all forms."""
        sides = [
            map(
                partial(self.kind.given, language),
                read_lines(self.data / RAW / f"train.{language}"),
            )
            for language in (self.kind.source, self.kind.target)
        ]
        return zip(*sides, strict=True)

    def _finished(self, row: Row) -> tuple[Row, Verdict | None]:
        """The row with both sides in all forms, or what is wrong with it; and the verdict."""
        kind = self.kind
        if row.origin == TEACHER:
            verdict = kind.judge(row.texts, row.target[0])
            if verdict.rank:
                text = row.texts[verdict.rank - 1].text
                return row._replace(target=kind.written(kind.target, text)), verdict
            problem = verdict.problem if self.request.keep == "both" else ""
            return row._replace(origin=ORIGINAL, problem=problem), verdict
        if row.problem or row.origin == ORIGINAL:
            return row, None
        given, written = kind.given, kind.written
        convert = (given, written) if row.origin == EXTRA else (written, given)
        source, target = convert[0](kind.source, row.source), convert[1](kind.target, row.target)
        problem = kind.reason_against(source, target) or ""
        return row._replace(source=source, target=target, problem=problem), None

    def _write(self) -> dict[str, Any]:
        """Write the text of train.

        Returns:
            how many pairs of each origin are kept, and why others are not; and the comparison of
            the teacher's texts with the references.
        """
        kept = dict.fromkeys((ORIGINAL, TEACHER, EXTRA, BACK), 0)
        reasons: dict[str, dict[str, int]] = {name: Counter() for name in kept}
        found = Comparison()

        def columns() -> Iterator[tuple[str, ...]]:
            how = (self.workers, "pairs of train")
            for row, verdict in map_lines(self._finished, self._rows(), *how, option=OPTION):
                if verdict is not None:
                    found.add(verdict)
                if row.problem:
                    reasons[row.origin][row.problem] += 1
                    continue
                kept[row.origin] += 1
                rank = "" if row.origin == ORIGINAL else str(verdict.rank if verdict else 1)
                raw, tokens = row.source
                if row.origin == BACK and self.tag is not None:
                    tokens = f"{self.tag} {tokens}"
                yield raw, tokens, *row.target, f"{row.origin}\t{row.line}\t{rank}"

        languages = (self.kind.source, self.kind.target)
        names = [f"{form}/train.{lang}" for lang in languages for form in (RAW, TOKENS)]
        write_columns([self.folder / name for name in (*names, KEPT)], columns())
        return {"kept": kept, "left_out": reasons, "teacher": vars(found)}

    def _binarise(self) -> None:
        """Binarise train with the unchanged dictionaries of the data."""
        from fairseq.data import Dictionary

        task = self.kind.task(self.kind.stored, ["train"])
        model = KINDS[self.kind.settings.subword]
        encoders = task.encoders(model(self.folder / model.file_name), self.workers)
        for language, encoder in zip(task.sides, encoders):
            if language == self.kind.source:
                encoder.tag = self.tag
            text = self.folder / WORK / f"train.{language}.numbers"
            encoded = encode(read_lines(self.folder / TOKENS / f"train.{language}"), encoder, text)
            dictionary = Dictionary.load(str(self.data / f"dict.{language}.txt"))
            binary = self.folder / task.files("train", language)[0]
            write(encoded, encoder.numbers.symbols, dictionary, binary)
        for path in dictionaries(self.data):
            copy(path, self.folder / path.name)

    def _copy(self) -> None:
        """Copy valid and test."""
        for pattern in ("*.*", "text/*/*.*"):
            for path in sorted(self.data.glob(pattern)):
                if path.is_file() and path.name.split(".")[0] in ("valid", "test"):
                    copy(path, self.folder / path.relative_to(self.data))

    def _report(self, found: dict[str, Any], written: dict[str, Any]) -> list[str]:
        """Lines about the teachers, their texts (`found`, by split), and train (`written`)."""
        reverse = self.reverse.names if self.reverse else []
        return [
            f"{self.kind.source} to {self.kind.target}, distilled from {self.data}",
            *(f"Teacher: {name}" for name in self.teachers.names),
            *(f"Reverse teacher: {name}" for name in reverse),
            "",
            *table(_distances(found)),
            "",
            f"BLEU of the teacher's best against the reference: {self.kind.signature()}",
            "unknown: with a word that the teacher's dictionary lacks",
            "",
            *self._pairs_of_train(written),
            f"{KEPT} has for each pair its origin, its line there and the teacher's rank",
            "valid and test are the original ones",
        ]

    def _pairs_of_train(self, written: dict[str, Any]) -> list[str]:
        """Lines about the origin of the pairs of train; `written` is the result of `_write`."""
        kept, teacher = written["kept"], written["teacher"]
        lines = [f"Train has {sum(kept.values()):,} pairs"]
        lines += [f"  {number:>9,}  {origin}" for origin, number in kept.items() if number]
        none = teacher["ranks"].get("0", 0)
        if none:
            lines += [
                "Lines for which the teacher wrote nothing to learn (empty, cut off, unknown) and "
                f"which are original: {none:,}"
            ]
        if self.request.nbest > 1:
            ranks = sorted((int(rank), count) for rank, count in teacher["ranks"].items())
            lines += [
                f"Of {self.request.nbest} texts the one nearest to the reference is kept; BLEU of "
                f"these {bleu_from(teacher['kept']):.2f}; lines by the rank of their text: "
                + ", ".join(f"{rank}: {count:,}" for rank, count in ranks if rank)
            ]
        for name, path in ((EXTRA, self.request.extra), (BACK, self.request.back)):
            if path is not None:
                lines += [f"{path}: {kept[name]:,} lines are kept"]
                lines += left_out(written["left_out"][name], "lines")
        if self.tag is not None:
            lines += [f"Back-translated sources begin with {self.tag}"]
        return lines


def _distances(found: dict[str, Any]) -> list[list[str]]:
    """A table of the teacher's best texts against the references, by split."""
    problems = (EMPTY, CUT_OFF, UNKNOWN_WORD)
    rows = [["", "lines", "BLEU", "teacher's words", "reference's words", *problems]]
    for split, of_split in found.items():
        counts = [*of_split["best"][:2], *(of_split["problems"].get(each, 0) for each in problems)]
        bleu = f"{bleu_from(of_split['best']):.2f}"
        rows.append([split, f"{of_split['lines']:,}", bleu, *(f"{count:,}" for count in counts)])
    return rows


def parts_of_bleu(score: BLEUScore) -> list[int]:
    """The counts that give BLEU, which add up over sentences."""
    return [score.sys_len, score.ref_len, *score.counts, *score.totals]


def bleu_from(sums: Sequence[int]) -> float:
    """Corpus BLEU from sums of `parts_of_bleu`."""
    order = (len(sums) - 2) // 2
    counts, totals = list(sums[2 : 2 + order]), list(sums[2 + order :])
    return BLEU.compute_bleu(counts, totals, sums[0], sums[1], smooth_method="exp").score
