"""Train models on a teacher's output: its translations or summaries replace those of train.

Sequence-level distillation (Kim & Rush, EMNLP 2016) trains a student on its teacher's output for
the sources of train. The authors report that small students then lose less.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from fairseq_plugins.data import report, summarization, translation
from fairseq_plugins.data.pipeline import prepare
from fairseq_plugins.data.preparation import WORK, Preparation
from fairseq_plugins.data.prepared_folder import Prepared, check_data, fingerprint, needed_files
from fairseq_plugins.data.readers import RAW, TOO_LONG, Corpus, Example
from fairseq_plugins.distill.request import DistillationRequest
from fairseq_plugins.distill.teachers import CUT_OFF, EMPTY, UNKNOWN_WORD, Teacher, Texts
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.translation import bleu_of
from fairseq_plugins.files import digest, read_input, read_lines, read_pairs, write_lines
from fairseq_plugins.system.workers import default_workers, map_lines
from fairseq_plugins.text.languages import is_unspaced, scored_as
from fairseq_plugins.text.moses import Moses
from fairseq_plugins.text.sentences import is_blank, separate_sentences

JUDGED = f"{WORK}/train.judged"
KEPT = "text/kept.tsv"  # for each pair of train: its origin, its line there, the teacher's rank
ORIGINAL, TEACHER, EXTRA, BACK = "original", "teacher", "extra", "back-translated"
NOT_OF_TEXTS = ("cpu", "max_tokens", "user_dir")  # of the search: they do not change the texts
PROBLEMS = (EMPTY, CUT_OFF, UNKNOWN_WORD)


class Judge:
    """Chooses among a teacher's texts by BLEU, and counts what the report says of them.

    Args:
        prepared: the folder of the references.
        target: the language of the texts.
    """

    def __init__(self, prepared: Prepared, target: str):
        lowercase = prepared.processing.lowercase
        self.plain: Callable[[str], str] = str  # the text as `evaluate` scores it
        if prepared.task == "summarization":  # no language is recorded
            unspaced = is_unspaced(read_lines(prepared.folder / RAW / f"valid.{target}"))
            kind = "char" if unspaced else "13a"
            self.bleu = BLEU(lowercase=lowercase, tokenize=kind, effective_order=True)
            self.plain = lambda text: " ".join(separate_sentences(text))
        else:
            self.bleu = bleu_of(target, lowercase, sentences=True)
            if prepared.processing.tokenised_before:
                self.plain = Moses(scored_as(target)).detokenise

    def __call__(self, line: tuple[str, Texts]) -> list[Any]:
        """Choose among the texts of a line, which come with their reference.

        Returns:
            the rank of the usable text that is nearest to the reference, from 1, or 0 if no text is
                usable; this text, or the reference; the problem of the teacher's best text; and
                the statistics of BLEU of the best and of the chosen text.
        """
        reference, texts = line
        usable = [number for number, (_, problem) in enumerate(texts) if not problem]
        if not usable:
            texts = [*texts, [reference, ""]]
        expected = [[self.plain(reference)]]
        scores = [self.bleu.corpus_score([self.plain(text)], expected) for text, _ in texts]
        nearest = max(usable, key=lambda number: scores[number].score, default=-1)
        best, kept = (
            [s.sys_len, s.ref_len, *s.counts, *s.totals] for s in (scores[0], scores[nearest])
        )
        return [nearest + 1, texts[nearest][0], texts[0][1], best, kept]


class Comparison:
    """What the report says of a teacher's texts for a split, added up line by line."""

    def __init__(self) -> None:
        self.best, self.kept = [0] * 10, [0] * 10
        self.problems, self.ranks = Counter[str](), Counter[int]()

    def add(self, judged: Any) -> str:
        """Add what a `Judge` says of a line; returns its rank, text and problem as JSON."""
        rank, _, problem, best, kept = judged
        self.best = [a + b for a, b in zip(self.best, best)]
        self.kept = [a + b for a, b in zip(self.kept, kept)]
        self.problems[problem] += 1
        self.ranks[rank] += 1
        return json.dumps(judged[:3], ensure_ascii=False)

    def row(self, split: str) -> list[str]:
        """Its row of the report."""
        counts = [*self.best[:2], *(self.problems[each] for each in PROBLEMS)]
        bleu = f"{bleu_from(self.best):.2f}"
        return [split, f"{self.ranks.total():,}", bleu, *(f"{count:,}" for count in counts)]


def bleu_from(sums: Sequence[int]) -> float:
    """Corpus BLEU from sums of a judge's statistics."""
    counts, totals = list(sums[2:6]), list(sums[6:])
    return BLEU.compute_bleu(counts, totals, sums[0], sums[1], smooth_method="exp").score


class Distillation:
    """A prepared folder with a teacher's texts, and the words, valid and test of another.

    Attributes:
        teacher: writes targets.
        reverse: writes sources, for `request.back_translate`.
        tag: of sources that a teacher wrote (Caswell et al. 2019); None without them.

    Raises:
        ConfigurationError: a folder or file cannot be used.
    """

    def __init__(self, request: DistillationRequest):
        self.request, self.data = request, request.data
        check_data(self.data)
        self.teacher, self.reverse = Teacher.of(request, request.teachers, "TEACHER"), None
        self.prepared = Prepared(self.data)
        self.prepared.check_one_direction()
        self.source, self.target = direction = self.teacher.direction
        if request.reverse:
            self.reverse = Teacher.of(request, request.reverse, "--reverse", nbest=1)
            if self.reverse.direction != direction[::-1]:
                raise ConfigurationError(
                    "--reverse {} translates {}-{}, and TEACHER {}-{}: they must be of opposite "
                    "directions".format(self.reverse.names[0], *self.reverse.direction, *direction)
                )
        tagged = self.reverse and not request.no_tag
        self.tag = find_tag(self.data, self.source) if tagged else None
        has_test = self.text("test", self.source).is_file()
        self.splits = ["train", "valid", *["test"] * has_test]
        self.judge = Judge(self.prepared, self.target)
        self.workers = request.processes or default_workers()

    def settings(self) -> dict[str, Any]:
        """All that decides the content of the folder."""
        texts = [self.text(s, side) for s in ("train", "valid") for side in self.prepared.languages]
        # without the folders in DATA: one of them may be the destination
        files = [path for path in needed_files(self.data).values() if path.parent == self.data]
        search = {n: v for n, v in self.teacher.search.items() if n not in NOT_OF_TEXTS}
        extra, back, taken = self.request.extra, self.request.back_translate, self.prepared.settings
        return {
            **{n: v for n, v in taken.items() if n != "terms"},  # no symbols for terms in its texts
            "distilled": fingerprint([*files, *texts]),
            "teacher": self.teacher.digests,
            "keep": self.request.keep,
            "search": {**search, "max_len": self.request.max_len},
            "extra": None if extra is None else digest(extra),
            "back_translate": None if back is None else digest(back),
            "reverse": None if self.reverse is None else self.reverse.digests,
            "tag": self.tag,
        }

    def text(self, split: str, language: str) -> Path:
        """The text of a split in the prepared folder."""
        return self.data / RAW / f"{split}.{language}"

    def run(self) -> None:
        """Let the teachers write, and prepare what is kept, unless the folder is finished.

        Raises:
            ConfigurationError: the folder exists with other content, or a process was killed.
        """
        with Preparation(self.request.out, self.settings(), keep=[WORK]) as preparation:
            if not preparation.finished:
                self._make(preparation)

    def _make(self, preparation: Preparation) -> None:
        folder, source, request = preparation.folder, self.source, self.request
        written = folder / WORK / "written"  # which a rerun keeps
        sources = [self.text(split, source) for split in ("train", "valid")]
        sources += filter(None, [request.extra])
        taught = self.teacher.write(sources, written, request.processes)
        back: Iterator[Texts] = iter(())
        if self.reverse is not None and request.back_translate is not None:
            back = self.reverse.write([request.back_translate], written, request.processes)
        comparisons = {"train": Comparison(), "valid": Comparison()}
        for split, comparison in comparisons.items():
            references = read_lines(self.text(split, self.target))
            lines = zip(references, taught)  # in this order: one ends first
            how: Any = {"description": f"compare {split}", "option": "--processes"}
            judged = map_lines(self.judge, lines, self.workers, **how)
            compared = map(comparison.add, judged)
            if split == "train":
                write_lines(folder / JUDGED, compared)
            else:  # only its counts are needed
                deque(compared, maxlen=0)
        of_train = map(json.loads, read_lines(folder / JUDGED))
        items, task = self._examples(of_train, taught, back), self._task(comparisons)
        prepare(preparation, task, Corpus(items, Example._make), self.workers, self.data)

    def _examples(
        self, judged: Iterator[Any], taught: Iterator[Texts], back: Iterator[Texts]
    ) -> Iterator[Example]:
        """All examples of the new folder, each named by its origin, line and rank."""
        both, request = self.request.keep == "both", self.request

        def pairs(split: str) -> Iterator[tuple[str, str]]:
            return read_pairs(self.text(split, self.source), self.text(split, self.target))

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
        more = (EXTRA, request.extra, taught), (BACK, request.back_translate, back)
        for name, path, texts in more:
            lines = [] if path is None else zip(read_input(path), texts)
            for number, (line, ((text, problem), *_)) in enumerate(lines, 1):
                given = line or ""
                problem = "empty side" if is_blank(given) else problem
                sides = (given, text) if name == EXTRA else (text, given)
                yield example(name, number, 1, sides, TOO_LONG if line is None else problem)
        for split in self.splits[1:]:
            for sides in pairs(split):
                yield example(ORIGINAL, 0, "", sides)._replace(split=split)

    def _task(self, comparisons: dict[str, Comparison]) -> Any:
        """The kind of the data, with its origins, tags and report."""
        settings = {**self.prepared.settings, "valid_every": None}
        outer, summarizes = self, self.prepared.task == "summarization"
        base: Any = summarization.Documents if summarizes else translation.Pairs
        tag, at = self.tag, -2 + self.prepared.languages.index(self.source)

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
                path = folder / RAW / "train.id"
                kept = Counter(name.split(" ")[0] for name in read_lines(path))
                write_lines(folder / KEPT, (name.replace(" ", "\t") for name in read_lines(path)))
                for split in outer.splits:
                    (folder / RAW / f"{split}.id").unlink()
                return {"kept": kept}

            def encoders(self, model: Any, threads: int) -> Any:
                found = super().encoders(model, threads)
                found[at].tag = tag
                return found

            def notes(self, folder: Path, results: dict[str, Any]) -> list[str]:
                return outer._notes(results["kept"], comparisons)

        return Distilled(settings, self.splits)

    def _notes(self, kept: Counter[str], comparisons: dict[str, Comparison]) -> list[str]:
        reverse = self.reverse.names if self.reverse else []
        head = ["", "lines", "BLEU", "teacher's words", "reference's words", *PROBLEMS]
        self.judge.bleu.corpus_score([""], [[""]])  # now its signature tells all
        signature = str(self.judge.bleu.get_signature()).replace("eff:yes", "eff:no")
        lines = [
            f"{self.source} to {self.target}, distilled from {self.data}",
            *(f"Teacher: {name}" for name in self.teacher.names),
            *(f"Reverse teacher: {name}" for name in reverse),
            "",
            *report.table([head, *(each.row(split) for split, each in comparisons.items())]),
            "",
            f"BLEU of the teacher's best against the reference: {signature}",
            "unknown: with a word that the teacher's dictionary lacks",
            "",
            f"Train has {kept.total():,} pairs",
            *(f"  {number:>9,}  {origin}" for origin, number in kept.items()),
        ]
        nbest = self.teacher.search["nbest"]
        none, *ranks = (comparisons["train"].ranks[rank] for rank in range(1 + nbest))
        if none:
            lines += [
                "Lines for which the teacher wrote nothing to learn (empty, cut off, unknown) and "
                f"which are original: {none:,}"
            ]
        if self.request.keep == "nearest":
            lines += [
                f"Of {nbest} texts the one nearest to the reference is kept; BLEU of these "
                f"{bleu_from(comparisons['train'].kept):.2f}; lines by the rank of their text: "
                + ", ".join(f"{rank}: {count:,}" for rank, count in enumerate(ranks, 1) if count)
            ]
        lines += [f"Back-translated sources begin with {self.tag}"] if self.tag else []
        lines += [f"{KEPT} has for each pair its origin, its line there and the teacher's rank"]
        return [*lines, "the validation and test sets are the original ones"]


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
