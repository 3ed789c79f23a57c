#!/usr/bin/env python3
"""Score a trained model: average checkpoints, translate a split, BLEU and chrF.

    bash scripts/evaluate.sh DATA RUN --last 10
    bash scripts/evaluate.sh DATA RUN --last 10 --compare RUN_B

DATA is the folder that scripts/prepare_iwslt14.py or prepare_translation.py made, RUN the
--save-dir of a training. Three scores, each with its signature:

  tokenised BLEU  lower-case Moses tokens, as the papers report it (multi-bleu.perl -lc)
  BLEU, chrF2     sacreBLEU's, on detokenised text, in the case the model was trained for

Without --last, --best or --checkpoint it is checkpoint_best.pt. What is done is kept in
RUN/evaluation, and done again only if checkpoints, data or options are others.
"""

import argparse
import contextlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import average_checkpoints  # noqa: E402
import torch  # noqa: E402
from folder_lock import alone_in  # noqa: E402
from sacrebleu.metrics import BLEU, CHRF  # noqa: E402
from sacrebleu.significance import PairedTest  # noqa: E402
from score_generation import read_translations  # noqa: E402
from train_recipe import why  # noqa: E402

from fairseq_plugins.errors import ConfigurationError  # noqa: E402
from fairseq_plugins.preparation.files import read_lines, write_lines, written_whole  # noqa: E402
from fairseq_plugins.preparation.moses import Moses  # noqa: E402
from fairseq_plugins.preparation.processing import Processing  # noqa: E402
from fairseq_plugins.preparation.progress import progress_bar  # noqa: E402
from fairseq_plugins.preparation.subwords import KINDS  # noqa: E402
from fairseq_plugins.preparation.translation import RAW, TOKENISED  # noqa: E402

TOKENISED_BLEU = "tokenised BLEU"


class Text(NamedTuple):
    """One side of a test set, a line a sentence."""

    tokens: List[str]  # for tokenised BLEU
    plain: List[str]  # for BLEU and chrF


class System(NamedTuple):
    """A model's translations and their scores."""

    name: str
    folder: Path
    test: "TestSet"
    text: Text
    scores: Dict[str, Dict[str, Any]]


class TestSet:
    """The references of a split, and how subwords become text that can be compared with them.

    Text that was tokenised before it was prepared (BPE without a tokenizer) keeps its tokens, and
    both sides are detokenised by Moses for BLEU and chrF. Text that was left to SentencePiece is
    tokenised by Moses for tokenised BLEU.

    Args:
        data: a prepared folder.
        split: test, valid or train.
        target: the language that is translated to, either of the folder's.

    Raises:
        ConfigurationError: the folder was not prepared by this package, or lacks the split.
    """

    def __init__(self, data: Path, split: str, target: str):
        settings = Processing.load(data)
        languages = (settings.source_lang, settings.target_lang)
        if target not in languages:
            raise ConfigurationError(
                f"the model translates to {target}, and {data} holds {' and '.join(languages)}"
            )
        self.split, self.lowercase = split, settings.lowercase
        binary = [
            data / f"{split}.{'-'.join(languages)}.{language}.{end}"
            for language in languages
            for end in ("bin", "idx")
        ]
        raw, tokenised = (data / form / f"{split}.{target}" for form in (RAW, TOKENISED))
        self.files = [*sorted(data.glob("dict.*.txt")), *binary, raw, tokenised]
        for path in self.files:
            if not path.is_file():
                have = sorted({path.name.split(".")[0] for path in data.glob("*.*-*.*.idx")})
                raise ConfigurationError(
                    f"--split {split}: {path} is missing; {data} holds {', '.join(have)}"
                )
        kind = KINDS[settings.subword]
        self._subwords = kind(data / kind.file_name)
        self._moses, self._undo = Moses(target), settings.tokenise(target).undo
        self._tokenised_before = settings.tokenizer == "none" and settings.subword == "bpe"
        self._untokenised = settings.tokenizer == "none" and settings.subword != "bpe"
        plain = list(read_lines(raw))
        if self._tokenised_before:
            plain = [self._moses.detokenise(line) for line in plain]
        self.references = Text([self._tokens(line) for line in read_lines(tokenised)], plain)

    def text(self, pieces: Sequence[str]) -> Text:
        """Translations as tokens and as plain text, from subwords separated by spaces."""
        lines = [self._subwords.join(line) for line in pieces]
        undo = self._moses.detokenise if self._tokenised_before else self._undo
        return Text([self._tokens(line) for line in lines], [undo(line) for line in lines])

    def _tokens(self, line: str) -> str:
        return self._moses.tokenise(line) if self._untokenised else line

    def metrics(self) -> Dict[str, Any]:
        """The scores by name. multi-bleu.perl does not smooth."""
        return {
            TOKENISED_BLEU: BLEU(tokenize="none", smooth_method="none", lowercase=True, force=True),
            "BLEU": BLEU(lowercase=self.lowercase),
            "chrF2": CHRF(lowercase=self.lowercase),
        }

    @staticmethod
    def side(text: Text, metric: str) -> List[str]:
        """The form of a text that a metric reads."""
        return text.tokens if metric == TOKENISED_BLEU else text.plain

    def score(self, text: Text) -> Dict[str, Dict[str, Any]]:
        """Score and signature of each metric."""
        scores = {}
        for name, metric in self.metrics().items():
            result = metric.corpus_score(self.side(text, name), [self.side(self.references, name)])
            signature = str(metric.get_signature())
            scores[name] = {"score": result.score, "signature": signature}
        return scores


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line up to --, with what stands behind it in `extra`."""
    words = list(words)
    own, extra = words, []
    if "--" in words:
        own, extra = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = argparse.ArgumentParser(
        prog="evaluate.sh",
        usage="%(prog)s DATA RUN [options] [-- more options for fairseq-generate]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="the prepared folder")
    parser.add_argument("run", type=Path, metavar="RUN", help="the --save-dir of a training")
    parser.add_argument("--split", default="test", help="valid or test (default: %(default)s)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--last", type=int, metavar="K", help="average the newest K checkpoints")
    which.add_argument(
        "--best", type=int, metavar="K",
        help="average the best K that training kept (--keep-best-checkpoints)",
    )  # fmt: skip
    which.add_argument("--checkpoint", metavar="NAME", help="one checkpoint of RUN")
    parser.add_argument(
        "--by", choices=["epoch", "update"],
        help="what --last counts (default: epochs where training kept their checkpoints)",
    )  # fmt: skip
    parser.add_argument("--beam", type=int, default=5, help="beam size (default: %(default)s)")
    parser.add_argument(
        "--max-tokens", type=int, default=4096,
        help="source tokens translated at a time (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--compare", type=Path, metavar="RUN_B",
        help="score this one in the same way, and test whether the two differ by paired bootstrap",
    )  # fmt: skip
    parser.add_argument(
        "--samples", type=int, default=1000, help="of the bootstrap (default: %(default)s)"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    args = parser.parse_args(own)
    args.extra = extra
    return args


def check(args: argparse.Namespace) -> None:
    """Raise a ConfigurationError for what can be seen to be wrong before anything slow."""
    if not args.data.is_dir():
        raise ConfigurationError(f"DATA {args.data}: no such folder")
    for run in (args.run, args.compare):
        if run is not None and not run.is_dir():
            raise ConfigurationError(f"{run}: no such folder; RUN is the --save-dir of a training")
    if args.compare is not None and args.compare.resolve() == args.run.resolve():
        raise ConfigurationError(f"--compare {args.compare} is RUN itself: name another one")
    for name, value in (("beam", args.beam), ("samples", args.samples)):
        if value < 1:
            raise ConfigurationError(f"--{name} {value}: at least 1 is needed")
    for word in args.extra:
        option = word.split("=")[0]
        if option in ("--path", "--gen-subset", "--results-path", "--remove-bpe", "--post-process"):
            raise ConfigurationError(f"{option} cannot stand behind --: this script sets it")


def choose(run: Path, args: argparse.Namespace) -> List[Path]:
    """The checkpoints of a training that are averaged, or the one that is not."""
    if args.last is None and args.best is None:
        path = run / (args.checkpoint or "checkpoint_best.pt")
        if not path.is_file():
            have = sorted(path.name for path in run.glob("*.pt"))
            raise ConfigurationError(
                f"{path} is not there: {run} has {', '.join(have) or 'no checkpoint; train first'}"
            )
        return [path]
    by = args.by
    if by is None:
        by = "epoch" if any(run.glob("checkpoint[0-9]*.pt")) else "update"
    return average_checkpoints.choose([run], args.last, args.best, by)


def label(args: argparse.Namespace) -> str:
    """The choice of checkpoints as a file name."""
    if args.last is not None:
        return f"last{args.last}" + (f"-{args.by}" if args.by else "")
    if args.best is not None:
        return f"best{args.best}"
    return Path(args.checkpoint or "checkpoint_best.pt").stem


def identity(paths: Sequence[Path]) -> List[List[Any]]:
    """Changes when a file is written anew."""
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def stored(path: Path) -> Any:
    """What a JSON file holds, or None."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def store(path: Path, value: Any) -> None:
    with written_whole(path) as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def averaged(paths: List[Path], output: Path) -> Path:
    """The average of checkpoints as a file, made unless it is there."""
    inputs = output.with_suffix(".json")
    if not output.is_file() or stored(inputs) != identity(paths):
        inputs.unlink() if inputs.exists() else None
        average_checkpoints.main(
            ["--inputs", *[str(path) for path in paths], "--output", str(output)]
        )
        store(inputs, identity(paths))
    return output


def translate(
    checkpoint: Path, languages: Sequence[str], test: TestSet, folder: Path, args: Any
) -> List[str]:
    """Run fairseq-generate, with progress; the best translation of each sentence as subwords."""
    command = [sys.executable, "-m", "fairseq_cli.generate", str(args.data)]
    command += ["--user-dir", str(ROOT / "fairseq_plugins"), "--path", str(checkpoint)]
    command += ["--source-lang", languages[0], "--target-lang", languages[1]]
    command += ["--gen-subset", args.split, "--beam", str(args.beam)]
    command += ["--max-tokens", str(args.max_tokens), "--no-progress-bar"]
    if args.cpu or not torch.cuda.is_available():
        command += ["--cpu"]
    command += args.extra
    log, errors = folder / "generate.log", folder / "generate.err"
    sentences = len(test.references.plain)
    with open(str(log) + ".part", "w", encoding="utf-8") as out, open(errors, "w") as err:
        bar = progress_bar(
            description=f"{args.split} translated", total=sentences, unit=" sentences"
        )
        with bar, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=err, encoding="utf-8", errors="replace"
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                out.write(line)
                bar.update(line.startswith("D-"))
        status = process.returncode
    if status != 0:
        raise ConfigurationError(f"fairseq-generate failed ({errors}): {why(errors)}")
    os.replace(str(log) + ".part", str(log))
    pieces = read_translations(log)
    if len(pieces) != sentences:
        raise ConfigurationError(
            f"{len(pieces)} translations of {sentences} sentences came out ({errors} may say why): "
            "all are needed for a score"
        )
    return pieces


def evaluate(run: Path, args: argparse.Namespace) -> System:
    """Translate with a model and score it; what an earlier run did is kept."""
    paths = choose(run, args)
    task = average_checkpoints.load(paths[-1])["cfg"]["task"]
    prepared = Processing.load(args.data)  # whose direction is the default
    languages = [
        task["source_lang"] or prepared.source_lang,
        task["target_lang"] or prepared.target_lang,
    ]
    test = TestSet(args.data, args.split, languages[1])
    folder = run / "evaluation" / f"{args.split}-{label(args)}-beam{args.beam}"
    inputs = {
        "checkpoints": identity(paths),
        "data": identity(test.files),
        "options": [args.max_tokens, *args.extra],
    }
    with alone_in(run / "evaluation", "evaluation"):
        folder.mkdir(exist_ok=True)
        hypotheses, done = folder / "hypotheses.subwords", folder / "inputs.json"
        if stored(done) == inputs and hypotheses.is_file():
            print(f"kept: {folder}", file=sys.stderr)
        else:
            if done.exists():
                done.unlink()
            checkpoint = paths[0]
            if args.last is not None or args.best is not None:
                with contextlib.redirect_stdout(sys.stderr):
                    checkpoint = averaged(paths, run / "evaluation" / f"{label(args)}.pt")
            write_lines(hypotheses, translate(checkpoint, languages, test, folder, args))
            store(done, inputs)
        text = test.text(list(read_lines(hypotheses)))
        write_lines(folder / "hypotheses.tokens", text.tokens)
        write_lines(folder / "hypotheses.txt", text.plain)
        scores = test.score(text)
        store(
            folder / "scores.json",
            {
                "run": str(run),
                "checkpoints": [path.name for path in paths],
                "split": args.split,
                "sentences": len(text.plain),
                "beam": args.beam,
                "scores": scores,
            },
        )
    return System(str(run), folder, test, text, scores)


def compare(system: System, baseline: System, samples: int) -> Dict[str, Any]:
    """Paired bootstrap of sacreBLEU (Koehn 2004) for each score.

    Each sample draws as many sentences as there are, with replacement, the same for both systems.
    p is the share of samples whose difference departs from the mean difference by at least the
    difference that was seen; the interval holds 95 % of the samples' scores.
    """
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    test = system.test
    if test.references != baseline.test.references:
        raise ConfigurationError(f"{system.name} and {baseline.name} translate to other languages")
    found: Dict[str, Any] = {}
    for name, metric in test.metrics().items():
        paired = PairedTest(
            [(side.name, test.side(side.text, name)) for side in (baseline, system)],
            {name: metric},
            [test.side(test.references, name)],
            test_type="bs",
            n_samples=samples,
        )
        signatures, results = paired()
        (key,) = signatures
        theirs, ours = results[key]
        difference = ours.score - theirs.score
        found[name] = {
            "score": ours.score,
            "interval": [float(ours.mean - ours.ci), float(ours.mean + ours.ci)],
            "baseline": theirs.score,
            "baseline_interval": [float(theirs.mean - theirs.ci), float(theirs.mean + theirs.ci)],
            "difference": difference,
            # two equal systems never depart, which sacreBLEU takes for the rarest of cases
            "p": float(ours.p_value) if difference != 0 else 1.0,
            "signature": str(signatures[key]),
        }
    return found


def show(system: System) -> None:
    print(f"{system.name} ({system.folder.name})")
    for name, result in system.scores.items():
        print(f"  {name} = {result['score']:.2f}  {result['signature']}")


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(sys.argv[1:] if argv is None else argv)
    check(args)
    if args.compare is not None:
        choose(args.compare, args)  # before the other one's minutes of work
    system = evaluate(args.run, args)
    show(system)
    if args.compare is None:
        return 0
    baseline = evaluate(args.compare, args)
    show(baseline)
    found = compare(system, baseline, args.samples)
    print(f"{system.name} against {baseline.name}")
    for name, result in found.items():
        print(
            f"  {name} {result['difference']:+.2f}, p = {result['p']:.4f}: "
            "{:.2f} ({:.2f} - {:.2f}) against {:.2f} ({:.2f} - {:.2f})  {}".format(
                result["score"],
                *result["interval"],
                result["baseline"],
                *result["baseline_interval"],
                result["signature"],
            )
        )
    name = f"against-{args.compare.resolve().name}.json"
    store(system.folder / name, {"baseline": baseline.name, "scores": found})
    print(f"all of it: {system.folder}/{{scores,against-*}}.json")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; run it again and what is done is kept")
