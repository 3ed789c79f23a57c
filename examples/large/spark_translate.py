"""Translate the lines of a text file with Spark, on one machine or a cluster.

    pip install pyspark pandas pyarrow
    spark-submit --master "local[2]" examples/large/spark_translate.py MODEL in.txt out.txt [BATCH]

Each task of a partition loads the model once and translates batches of neighbouring lines. Spark
repeats a task that failed, if spark.task.maxFailures allows it (on "local[2]" it does not; use
"local[2,4]"). The lines are collected in the order of their numbers, so OUTPUT equals that of the
command `translate --buffer BATCH`.
"""

import itertools
import sys
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession

model, source, target = sys.argv[1:4]
size = int(sys.argv[4]) if sys.argv[4:] else 2000


def translate(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    from fairseq_plugins.api import Translator

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
