"""Counting operations."""

import os

import torch

from fairseq_plugins.lab.benchmarks.operations import count_flops
from fairseq_plugins.modules import kernels


def test_a_product_has_two_operations_for_each_of_its_multiplications():
    assert count_flops(lambda rows: torch.ones(rows, 4) @ torch.ones(4, 5), [3, 1]) == 2 * 4 * 20


def test_kernels_that_cannot_be_counted_are_off_meanwhile(monkeypatch):
    monkeypatch.setenv(kernels.VARIABLE, "1")
    seen = []
    count_flops(lambda _: seen.append(kernels.asked()), [None])
    assert seen == [False]
    assert os.environ[kernels.VARIABLE] == "1"
