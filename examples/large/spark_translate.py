"""Translate the lines of a text file with Spark, on one machine or a cluster.

    pip install pyspark pandas pyarrow
    spark-submit --master "local[2,4]" examples/large/spark_translate.py MODEL INPUT OUTPUT [BATCH]

"local[2,4]" is two workers on this machine, where a task may fail up to three times; on "local[2]"
Spark repeats none. Each task loads the model once and translates batches of BATCH (2000)
neighbouring lines. The results are sorted by the numbers of their lines, so the output equals that
of the command `translate --buffer BATCH`.
"""

import itertools
import sys
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession

from fairseq_plugins.api import Translator

model, source, target = sys.argv[1:4]
size = int(sys.argv[4]) if sys.argv[4:] else 2000


def translate(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    translator = Translator(model)
    for frame in frames:
        for first, lines in zip(frame["first"], frame["lines"]):
            found = translator.hypotheses(list(lines), split=True, first=int(first))
            yield pd.DataFrame({"first": [first], "texts": [[best.text for best, *_ in found]]})


spark = SparkSession.builder.appName("translate").getOrCreate()
with open(source, encoding="utf-8", newline="\n") as file:
    lines = (line.rstrip("\n") for line in file)
    batches = iter(lambda: list(itertools.islice(lines, size)), [])
    rows = [(number * size, batch) for number, batch in enumerate(batches)]
# a row is a batch for the model; a few partitions for each core, so that a failure costs little
parts = max(1, min(len(rows), 4 * spark.sparkContext.defaultParallelism))
pieces = spark.sparkContext.parallelize(rows, parts)
frame = spark.createDataFrame(pieces, "first long, lines array<string>")
done = frame.mapInPandas(translate, "first long, texts array<string>").collect()
with open(target, "w", encoding="utf-8", newline="\n") as out:
    for row in sorted(done):
        out.writelines(text + "\n" for text in row.texts)
spark.stop()
