"""What a table is: rows that differ in a few options, and the figures that a paper printed."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fairseq_plugins.evaluate import TOKENISED_BLEU

BASELINE = "transformer"  # the row that others are compared with, unless they name another


class Metric(NamedTuple):
    """A score of `evaluate`, and its title in the table."""

    score: str
    title: str


BLEU = (Metric(TOKENISED_BLEU, "BLEU"),)
BLEU_AND_OTHERS = (*BLEU, Metric("BLEU", "sacreBLEU"), Metric("chrF2", "chrF2"))
ACCURACY = (Metric("accuracy", "accuracy"),)
ACCURACY_AND_F1 = (*ACCURACY, Metric("macro F1", "macro F1"))
# published ROUGE-L is the summary-level one
ROUGE = tuple(Metric(*names) for names in (
    ("ROUGE-1", "ROUGE-1"), ("ROUGE-2", "ROUGE-2"), ("ROUGE-Lsum", "ROUGE-L")
))  # fmt: skip


class Paper(NamedTuple):
    """The published figures of a row, one per metric of its table.

    `deviations` are the published standard deviations over the runs of a row, if there are any.
    """

    scores: Sequence[float]
    deviations: Sequence[float] = ()
    epoch_seconds: int | None = None


class Row(NamedTuple):
    """A row of a table, with its recipe and options.

    Args:
        name: for `--rows`.
        labels: its cells in the columns of the table.
        recipe: of the package.
        words: options for fairseq-train.
        paper: published figures, if there are any.
        against: the row that the paper compares it with.
        claim: "higher", "lower" or "not lower" than that row, where a paper has no figures.
        reduced: replaces `words` with `--reduced`, if given.
        begins: name of the `FIRST_DATA` on which the model is trained first, with `words`.
            Training on the table's data then starts from only the parameters.
        then: a file of the package with more settings for the table's data, after `begins`.
        then_words: more options for the table's data, after `words`; later ones win.
    """

    name: str
    labels: Sequence[str]
    recipe: str
    words: str = ""
    paper: Paper | None = None
    against: str = BASELINE
    claim: str = ""
    reduced: str | None = None
    begins: str = ""
    then: str = ""
    then_words: str = ""

    @property
    def last_words(self) -> str:
        """The options of the training that is tested."""
        return f"{self.words} {self.then_words}".strip()


class Cited(NamedTuple):
    """A row that a paper quotes from other work. It is printed but not run."""

    labels: Sequence[str]
    scores: Sequence[float]


class Published(NamedTuple):
    """Scores of other work by the number of training pairs.

    Args:
        source: who measured them, and on what.
        metric: the title of the table's metric that they are.
        points: (pairs, score), by size.
    """

    source: str
    metric: str
    points: Sequence[tuple[int, float]]


class Table(NamedTuple):
    """Rows with the same settings for training and testing.

    Args:
        title: the paper and its table.
        columns: titles of the rows' labels.
        rows: what is run.
        metrics: what is measured; the first one is compared and plotted.
        settings: files of the package with settings for all rows.
        reduced: more of them, for `--reduced`: a size for two CPU cores.
        generation: a file of the package with options for fairseq-generate.
        reduced_generation: the same, for `--reduced`.
        precision: of training, one of `training.precision.PRECISIONS`.
        average: test the average of this many last checkpoints; 0 for the best on valid.
        seeds: default seeds of each row.
        runs: default (row, seed) pairs in training order, instead of `seeds`.
        seeds_of_paper: runs behind each published figure; 0 if unknown.
        data_of_paper: size of the paper's data, to be compared with `results["data"]`.
        cited: rows that the paper quotes.
        by_pairs: what `--beside` shows beside the scores here.
        timed: whether time is part of the table.
        fixed: options that the user may not give, besides those of the rows.
        remarks: what else a reader must know.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    metrics: Sequence[Metric] = BLEU
    settings: Sequence[str] = ()
    reduced: Sequence[str] = ("reduced_cpu",)
    generation: str = ""
    reduced_generation: str = ""
    precision: str = "auto"
    average: int = 0
    seeds: Sequence[int] = (1,)
    runs: Sequence[tuple[str, int]] = ()
    seeds_of_paper: int = 0
    data_of_paper: Mapping[str, Any] = {}
    cited: Sequence[Cited] = ()
    by_pairs: Published | None = None
    timed: bool = False
    fixed: Sequence[str] = ()
    remarks: Sequence[str] = ()

    def reduce(self) -> "Table":
        """The table for `--reduced`."""
        return self._replace(
            rows=[
                row if row.reduced is None else row._replace(words=row.reduced) for row in self.rows
            ],
            settings=[*self.settings, *self.reduced],
            generation=self.reduced_generation,
            average=0,  # so few updates leave too few checkpoints
            remarks=[
                *self.remarks,
                "Reduced setting: all rows alike, small models and few updates.",
            ],
        )
