"""Train models on a teacher's output: its translations or summaries replace those of train.

Sequence-level distillation (Kim & Rush, EMNLP 2016) trains a student on its teacher's output for
the sources of train. The authors report that small students then lose less.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sacrebleu.metrics.bleu import BLEU

from fairseq_plugins.data import report, summarization, translation
from fairseq_plugins.data.folder import WORK, Preparation
from fairseq_plugins.data.like import fingerprint
from fairseq_plugins.data.pipeline import prepare
from fairseq_plugins.data.prepared_folder import Prepared, needed_files
from fairseq_plugins.data.readers import RAW, TOO_LONG, Corpus, Example
from fairseq_plugins.distill.teachers import CUT_OFF, EMPTY, UNKNOWN_WORD, Teacher, Texts, read
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.translation import bleu_of
from fairseq_plugins.files import (
    count_lines,
    digest,
    read_input,
    read_lines,
    read_pairs,
    write_lines,
)
from fairseq_plugins.system.workers import map_lines
from fairseq_plugins.text.languages import is_unspaced, scored_as
from fairseq_plugins.text.moses import Moses
from fairseq_plugins.text.sentences import is_blank, separate_sentences

KEPT = "text/kept.tsv"  # for each pair of train: its origin, its line there, the teacher's rank
ORIGINAL, TEACHER, EXTRA, BACK = "original", "teacher", "extra", "back-translated"
WRITTEN = f"{WORK}/written"  # what teachers wrote, which a rerun keeps
NOT_OF_TEXTS = ("cpu", "max_tokens", "user_dir")  # of the search: they do not change the texts
OPTION = "--processes"  # which sets the number of processes


class DistillationRequest(NamedTuple):
    """What to distill.

    Attributes:
        data: the prepared folder.
        keep: "teacher": the teacher's best text; "nearest": the one of its texts nearest to the
            reference by BLEU; "both": the teacher's best and the original.
        extra: more source text, one line each.
        back: text of the target language, for which the reverse teacher writes sources.
        tag: whether sources that a teacher wrote begin with a tag (Caswell et al. 2019).
    """

    data: Path
    keep: str = "teacher"
    extra: Path | None = None
    back: Path | None = None
    tag: bool = True


class Judge:
    """Chooses among a teacher's texts by BLEU, and counts what the report says of them.

    Args:
        prepared: the folder of the references.
        target: the language of the texts.
    """

    def __init__(self, prepared: Prepared, target: str):
        processing = prepared.processing
        self._moses = Moses(scored_as(target)) if processing.tokenised_before else None
        self._summaries, valid = prepared.task == "summarization", f"{RAW}/valid.{target}"
        if self._summaries:  # no language is recorded
            kind = "char" if is_unspaced(read_lines(prepared.folder / valid)) else "13a"
            self.bleu = BLEU(lowercase=processing.lowercase, tokenize=kind, effective_order=True)
        else:
            self.bleu = bleu_of(target, processing.lowercase, sentences=True)

    def plain(self, text: str) -> str:
        """The text as `evaluate` scores it."""
        if self._summaries:
            return " ".join(separate_sentences(text))
        return text if self._moses is None else self._moses.detokenise(text)

    def __call__(self, line: tuple[str, Texts]) -> list[Any]:
        """Of a reference and texts: the rank of the nearest usable text, from 1, or 0; it, or the
        reference; the problem of the best text; and statistics of the best and of the kept one.
        """
        reference, texts = line
        expected, usable = [self.plain(reference)], [not problem for _, problem in texts]
        scores = [self.bleu.corpus_score([self.plain(text)], [expected]) for text, _ in texts]
        counts = [[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores]
        if not any(usable):
            same = self.bleu.corpus_score(expected, [expected])
            kept = [same.sys_len, same.ref_len, *same.counts, *same.totals]
            return [0, reference, texts[0][1], counts[0], kept]
        numbers = [number for number, fits in enumerate(usable) if fits]
        nearest = max(numbers, key=lambda number: scores[number].score)
        return [nearest + 1, texts[nearest][0], texts[0][1], counts[0], counts[nearest]]


class Comparison:
    """What the report says of a teacher's texts for a split, added up line by line."""

    def __init__(self) -> None:
        self.lines, self.best, self.kept = 0, [0] * 10, [0] * 10
        self.problems, self.ranks = Counter[str](), Counter[int]()

    def add(self, rank: int, problem: str, best: list[int], kept: list[int]) -> None:
        self.lines += 1
        self.best = [a + b for a, b in zip(self.best, best)]
        self.kept = [a + b for a, b in zip(self.kept, kept)]
        self.problems[problem] += 1
        self.ranks[rank] += 1

    def row(self, split: str) -> list[str]:
        """Its row of the report."""
        counts = [*self.best[:2], *(self.problems[each] for each in PROBLEMS)]
        bleu = f"{bleu_from(self.best):.2f}"
        return [split, f"{self.lines:,}", bleu, *(f"{count:,}" for count in counts)]


PROBLEMS = (EMPTY, CUT_OFF, UNKNOWN_WORD)


def bleu_from(sums: Sequence[int]) -> float:
    """Corpus BLEU from sums of a judge's statistics."""
    counts, totals = list(sums[2:6]), list(sums[6:])
    return BLEU.compute_bleu(counts, totals, sums[0], sums[1], smooth_method="exp").score


def distill(
    request: DistillationRequest,
    destination: Path,
    teacher: Teacher,
    reverse: Teacher | None,
    processes: int | None,
    workers: int,
) -> None:
    """Write a prepared folder with the subwords, dictionaries, valid and test of another.

    Args:
        request: what to distill.
        destination: the folder to write.
        teacher: writes targets.
        reverse: writes sources, for `request.back`.
        processes: of the teachers; None: one per GPU or core.
        workers: processes for everything else.

    Raises:
        ConfigurationError: a folder or file cannot be used, or `destination` exists with other
            content.
    """
    prepared = Prepared(request.data)
    prepared.check_one_direction()
    if reverse is not None and reverse.direction != teacher.direction[::-1]:
        raise ConfigurationError(
            "--reverse {} translates {}-{}, and TEACHER {}-{}: they must be of opposite "
            "directions".format(reverse.names[0], *reverse.direction, *teacher.direction)
        )
    found = _Distillation(request, prepared, teacher, reverse, processes, workers)
    with Preparation(destination, found.settings, keep=[WORK]) as preparation:
        if not preparation.finished:
            found.run(preparation)


class _Distillation:
    def __init__(
        self,
        request: DistillationRequest,
        prepared: Prepared,
        teacher: Teacher,
        reverse: Teacher | None,
        processes: int | None,
        workers: int,
    ):
        self.request, self.prepared, self.data = request, prepared, prepared.folder
        self.teacher, self.reverse = teacher, reverse
        self.processes, self.workers = processes, workers
        source, _ = teacher.direction
        self.tag = find_tag(self.data, source) if reverse is not None and request.tag else None
        self.judge = Judge(prepared, teacher.direction[1])
        languages = prepared.languages
        texts = [self.text(s, side) for s in ("train", "valid") for side in languages]
        for path in texts:
            if not path.is_file():
                raise ConfigurationError(
                    f"{path} is missing: name a folder that a prepare-* command made, with all its "
                    "text"
                )
        # without the folders in DATA: one of them may be the destination
        files = [path for path in needed_files(self.data).values() if path.parent == self.data]
        search = {n: v for n, v in teacher.search.items() if n not in NOT_OF_TEXTS}
        self.settings = {
            **prepared.settings,
            "distilled": fingerprint([*files, *texts]),
            "teacher": teacher.digests,
            "keep": request.keep,
            "search": {**search, "max_len": teacher.longest},
            "extra": None if request.extra is None else digest(request.extra),
            "back_translate": None if request.back is None else digest(request.back),
            "reverse": None if reverse is None else reverse.digests,
            "tag": self.tag,
        }

    def text(self, split: str, language: str) -> Path:
        """The text of a split in the prepared folder."""
        return self.data / RAW / f"{split}.{language}"

    def run(self, preparation: Preparation) -> None:
        """Let the teachers write, and prepare what is kept."""
        request, folder, (source, target) = self.request, preparation.folder, self.teacher.direction
        sources = [self.text("train", source), self.text("valid", source)]
        sources += [] if request.extra is None else [request.extra]
        taught = self._taught(folder, self.teacher, sources)
        back: Iterator[Texts] = iter(())
        if self.reverse is not None and request.back is not None:
            back = self._taught(folder, self.reverse, [request.back])
        comparisons = {"train": Comparison(), "valid": Comparison()}
        for split, comparison in comparisons.items():
            references = read_lines(self.text(split, target))
            lines = zip(references, taught)  # in this order: one ends first
            with open(folder / WORK / f"{split}.judged", "w", encoding="utf-8") as file:
                for rank, text, problem, *counts in map_lines(
                    self.judge, lines, self.workers, f"compare {split}", option=OPTION
                ):
                    comparison.add(rank, problem, *counts)
                    file.write(json.dumps([rank, text, problem], ensure_ascii=False) + "\n")
        judged = map(json.loads, read_lines(folder / WORK / "train.judged"))
        test = self.text("test", source)
        task = self._task(["train", "valid", *(["test"] if test.is_file() else [])], comparisons)
        items = self._examples(judged, taught, back, task.splits)
        prepare(preparation, task, Corpus(items, _itself), self.workers, self.data)

    def _taught(self, folder: Path, teacher: Teacher, sources: list[Path]) -> Iterator[Texts]:
        """What a teacher writes for the lines of files; a line that is too long counts as empty."""
        lines = itertools.chain.from_iterable(map(read_input, sources))
        how = [teacher.digests, teacher.search, teacher.longest, *map(digest, sources)]
        name = hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()[:16]
        path = folder / WRITTEN / f"{name}.jsonl"
        total = sum(map(count_lines, sources))
        teacher.write((line or "" for line in lines), total, path, self.processes)
        return read(path)

    def _examples(
        self,
        judged: Iterator[Any],
        taught: Iterator[Texts],
        back: Iterator[Texts],
        splits: Sequence[str],
    ) -> Iterator[Example]:
        """All examples of the new folder, each named by its origin, line and rank."""
        source, target = self.teacher.direction
        both = self.request.keep == "both"

        def pairs(split: str) -> Iterator[tuple[str, str]]:
            return read_pairs(self.text(split, source), self.text(split, target))

        def example(origin: str, line: int, rank: Any, sides: Any, problem: str = "") -> Example:
            sides = sides if self.teacher.direction == self.prepared.languages else sides[::-1]
            return Example("train", f"{origin} {line} {rank}", sides[0], sides[1], problem)

        for number, sides in enumerate(pairs("train") if both else [], 1):
            yield example(ORIGINAL, number, "", sides)
        for number, (sides, (rank, text, problem)) in enumerate(zip(pairs("train"), judged), 1):
            if rank:
                yield example(TEACHER, number, rank, (sides[0], text))
            else:
                yield example(ORIGINAL, number, "", sides, problem if both else "")
        for name, path, texts in (
            (EXTRA, self.request.extra, taught), (BACK, self.request.back, back),
        ):  # fmt: skip
            lines = [] if path is None else zip(read_input(path), texts)
            for number, (line, ((text, problem), *_)) in enumerate(lines, 1):
                given = line or ""
                problem = "empty side" if is_blank(given) else problem
                sides = (given, text) if name == EXTRA else (text, given)
                yield example(name, number, 1, sides, TOO_LONG if line is None else problem)
        for split in splits[1:]:
            for sides in pairs(split):
                yield example(ORIGINAL, 0, "", sides)._replace(split=split)

    def _task(self, splits: Sequence[str], comparisons: dict[str, Comparison]) -> Any:
        """The kind of the data, with its origins, tags and report."""
        settings = {**self.prepared.settings, "valid_every": None}
        outer, summarizes = self, self.prepared.task == "summarization"
        base: Any = summarization.Documents if summarizes else translation.Pairs
        tag, at = self.tag, -2 + self.prepared.languages.index(self.teacher.direction[0])

        class Distilled(base):
            names = True

            def convert(self, example: Example) -> tuple[str, tuple[str, ...]]:
                origin = example.name.split(" ")[0]
                problem, columns = super().convert(example)
                if origin in (ORIGINAL, TEACHER):  # stay, whatever the limits of preparation
                    problem = ""
                if origin == BACK and tag is not None:
                    texts = list(columns)
                    texts[at] = f"{tag} {texts[at]}"
                    columns = tuple(texts)
                return problem, columns

            def check(self, folder: Path) -> dict[str, Any]:
                path, kept = folder / RAW / "train.id", Counter[str]()
                kept.update(name.split(" ")[0] for name in read_lines(path))
                write_lines(folder / KEPT, (n.replace(" ", "\t") for n in read_lines(path)))
                for split in splits:
                    (folder / RAW / f"{split}.id").unlink()
                return {"kept": kept}

            def encoders(self, model: Any, threads: int) -> Any:
                found = super().encoders(model, threads)
                found[at].tag = tag
                return found

            def notes(self, folder: Path, results: dict[str, Any], workers: int) -> list[str]:
                return outer._notes(results, comparisons)

        return Distilled(settings, splits)

    def _notes(self, results: dict[str, Any], comparisons: dict[str, Comparison]) -> list[str]:
        source, target = self.teacher.direction
        reverse, kept = self.reverse.names if self.reverse else [], results["kept"]
        head = ["", "lines", "BLEU", "teacher's words", "reference's words", *PROBLEMS]
        self.judge.bleu.corpus_score([""], [[""]])  # now its signature tells all
        lines = [
            f"{source} to {target}, distilled from {self.data}",
            *(f"Teacher: {name}" for name in self.teacher.names),
            *(f"Reverse teacher: {name}" for name in reverse),
            "",
            *report.table([head, *(each.row(split) for split, each in comparisons.items())]),
            "",
            "BLEU of the teacher's best against the reference: "
            + str(self.judge.bleu.get_signature()).replace("eff:yes", "eff:no"),
            "unknown: with a word that the teacher's dictionary lacks",
            "",
            f"Train has {sum(kept.values()):,} pairs",
            *(f"  {number:>9,}  {origin}" for origin, number in kept.items()),
        ]
        train = comparisons["train"]
        if train.ranks[0]:
            lines += [
                "Lines for which the teacher wrote nothing to learn (empty, cut off, unknown) and "
                f"which are original: {train.ranks[0]:,}"
            ]
        if self.request.keep == "nearest":
            ranks = sorted((rank, count) for rank, count in train.ranks.items() if rank)
            lines += [
                f"Of {self.teacher.search['nbest']} texts the one nearest to the reference is "
                f"kept; BLEU of these {bleu_from(train.kept):.2f}; lines by the rank of their "
                "text: " + ", ".join(f"{rank}: {count:,}" for rank, count in ranks)
            ]
        lines += [f"Back-translated sources begin with {self.tag}"] if self.tag else []
        lines += [f"{KEPT} has for each pair its origin, its line there and the teacher's rank"]
        return [*lines, "valid and test are the original ones"]


def _itself(example: Example) -> Example:
    return example


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
