"""Mistakes in the command line of a benchmark: one line names the option. DATA is a toy corpus."""

import shlex

import pytest

from tests.lab.benchmarks.running import refused

REJECTED = {
    "growth --values 8": "at least one --contender",
    "layer --contender sdpb": "sdpb is not an architecture",
    "layer --contender 'ffn --colour 3'": "`ffn --colour 3`: --colour is unknown",
    "layer --contender 'sdpa --heads 7'": "7 heads do not divide",
    "layer --contender 'ffn --dropout 2'": "`ffn --dropout 2`: --dropout 2.0: must be",
    "layer --contender ffn --json .": "--json . is a folder: give a file",
    "layer --contender ffn --rounds 0": "--rounds 0",
    "memory --contender ffn --memory-limit 0.1": "--memory-limit 0.1",
    "memory --contender ffn --patience 0": "--patience 0.0:",
    "memory --contender 'mscffn --subspaces 7'": "--mscffn-subspaces 7 must be even",
    "growth --values 64 --tokens 32 --contender transformer": "--tokens",
    "growth --axis depth --values 1 --length 0 --contender ffn": "--length 0: must be at least 1",
    "growth --axis depth --values 1 --contender transformer_ftc": "`transformer_ftc` has 2 blocks",
    "generate DATA --contender nothing.pt": "--contender nothing.pt does not exist",
    "generate DATA --contender transformer --batch-size 4 --batches 9": "--batches 9: test has 3",
    "generate DATA --contender transformer --beam 0": "--beam 0: must be at least 1",
    "train-step DATA --arch transformer_ftcc": "did you mean transformer_ftc",
    "train-step DATA --arch 'transformer --no'": "fairseq-train does not take --no",
    "train-step DATA --arch 'transformer_ftc --time-window 0'": "--time-window 0",
    "train-step DATA --arch transformer --batches 99": "--batches 99: the training set has",
    "train-step DATA --arch transformer --dtype fp16": "--dtype fp16 needs a GPU",
    "train-step DATA --arch transformer --plot plot.pdf": "must end in .svg",
    "train-step tests --arch transformer": "has no dict",
}


@pytest.mark.parametrize("line", REJECTED)
def test_mistakes_are_rejected_in_one_line(toy_data, line):
    words = [str(toy_data.bin) if word == "DATA" else word for word in shlex.split(line)]
    assert REJECTED[line] in refused(*words)
