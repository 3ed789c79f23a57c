"""The tables that `reproduce` can measure, by the names of its command line: one file per paper.

A table is data; this is all that a comparison of two mixers on one's own labelled texts needs::

    "mine": Table(
        title="My texts",
        columns=("system",),
        rows=[
            Row("transformer", ("Transformer",), "imdb"),
            Row("performer", ("Performer",), "imdb", "--encoder-token-mixer performer"),
        ],
        metrics=ACCURACY,
        seeds=(1, 2, 3),
    )
"""

from . import fastformer, mscffn, summaries, transformer_ftc, translation
from .table import BASELINE, Cited, Metric, Paper, Published, Row, Table

TABLES: dict[str, Table] = {
    "ftc": transformer_ftc.TABLES_1_AND_2,
    "translation": translation.TRANSLATION,
    "multi30k": translation.MULTI30K,
    "low-resource": translation.LOW_RESOURCE,
    "summaries": summaries.SUMMARIES,
    "fastformer-imdb": fastformer.TABLE_4,
    "fastformer-amazon": fastformer.TABLE_4_AMAZON,
    "fastformer-mind": fastformer.TABLE_4_MIND,
    "fastformer-recommendation": fastformer.TABLE_5,
    "fastformer-cnn-dm": fastformer.TABLE_6_CNN_DM,
    "fastformer-pubmed": fastformer.TABLE_6_PUBMED,
    "fastformer-interaction": fastformer.FIGURE_3,
    "fastformer-sharing": fastformer.FIGURE_4,
    "mscffn-listops": mscffn.LISTOPS,
    "mscffn-text": mscffn.TEXT,
    "mscffn-retrieval": mscffn.RETRIEVAL,
    "mscffn-image": mscffn.IMAGE,
    "mscffn-pathfinder": mscffn.PATHFINDER,
}

__all__ = ["BASELINE", "TABLES", "Cited", "Metric", "Paper", "Published", "Row", "Table"]
