"""Translate the lines of a text file with Ray Data, on one machine or a cluster.

    pip install "ray[data]"
    python examples/large/ray_translate.py --model tatoeba-de-en --input in.txt --output out.txt

Each worker is an actor that loads the model once. Ray starts an actor again that died, and repeats
its batch. A batch is `--batch` neighbouring lines, so the output equals that of the command
`translate --buffer BATCH`. The results are written as they come, in the order of the lines.
"""

import argparse
import itertools

import ray

from fairseq_plugins.api import Translator


class Actor:
    def __init__(self, model: str) -> None:
        self.translator = Translator(model)

    def __call__(self, batch: dict) -> dict:
        found = []
        for first, lines in zip(batch["first"], batch["lines"]):
            texts = self.translator.hypotheses(list(lines), split=True, first=int(first))
            found.append([best.text for best, *_ in texts])
        return {"first": batch["first"], "texts": found}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "input", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2000)
    args = parser.parse_args()
    ray.init(log_to_driver=False)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    with open(args.input, encoding="utf-8", newline="\n") as file:
        lines = (line.rstrip("\n") for line in file)
        batches = iter(lambda: list(itertools.islice(lines, args.batch)), [])
        items = [{"first": n * args.batch, "lines": batch} for n, batch in enumerate(batches)]
    # one row is a batch for the model, and one block is what a worker gets: a failure costs one
    rows = ray.data.from_items(items, override_num_blocks=len(items))
    pool = ray.data.ActorPoolStrategy(size=args.workers)
    done = rows.map_batches(Actor, fn_constructor_args=[args.model], batch_size=1, compute=pool)
    with open(args.output, "w", encoding="utf-8", newline="\n") as out:
        for number, row in enumerate(done.iter_rows()):
            assert row["first"] == number * args.batch
            out.writelines(text + "\n" for text in row["texts"])
