"""The Triton kernels of a training: chosen once, in all processes, and kept when it resumes."""

import multiprocessing
import os
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion as Plain,
)
from fairseq.data import Dictionary
from fairseq.modules import TransformerEncoderLayer
from fairseq.modules.fairseq_dropout import FairseqDropout

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.encoder_layer import EncoderLayer
from fairseq_plugins.layers.feed_forwards import (
    MSCFFN,
    FeedForwardSpec,
    MSCFFNOptions,
    StandardFeedForward,
)
from fairseq_plugins.layers.token_mixers import Fastformer, MixerSpec
from fairseq_plugins.losses import LabelSmoothedCrossEntropyFused
from fairseq_plugins.train import kernel_choice

LAYER = {"encoder_embed_dim": 16, "encoder_ffn_embed_dim": 24, "encoder_attention_heads": 2}
LAYER |= {"attention_dropout": 0.0, "dropout": 0.0, "activation_dropout": 0.1}
ALL = ["additive_attention", "cross_entropy", "products"]


def trainer(cuda_graphs=False, **common):
    """What the choice reads of a Trainer, as if it were on a GPU."""
    options = ("bf16", "memory_efficient_bf16", "fp16", "memory_efficient_fp16", "amp")
    common = SimpleNamespace(**{**dict.fromkeys(options, False), **common})
    cfg = SimpleNamespace(common=common, model=SimpleNamespace(cuda_graphs=cuda_graphs))
    ffn = MSCFFN(FeedForwardSpec(8, 32), MSCFFNOptions(subspaces=2))
    layer = torch.nn.Module()  # stands for fairseq's own
    layer.final_layer_norm, layer.dropout_module = torch.nn.LayerNorm(8), FairseqDropout(0.1, "any")
    model = torch.nn.ModuleList([ffn, Fastformer(MixerSpec(8, 8, 2)), layer])
    task = SimpleNamespace(target_dictionary=Dictionary())
    criterion = LabelSmoothedCrossEntropyFused(task, False, 0.1)
    return SimpleNamespace(
        cfg=cfg, cuda=True, get_model=lambda: model, get_criterion=lambda: criterion
    )


@pytest.fixture
def checked(monkeypatch):
    """The kernels that were checked, with their number types; all are good."""
    seen = []
    monkeypatch.setattr(kernels, "_off", set())
    monkeypatch.setattr(kernels, "_problems", {})
    monkeypatch.setattr(kernels, "obstacle", lambda: "")
    monkeypatch.setattr(kernels, "gpu_obstacle", lambda device: "")
    monkeypatch.setattr(kernels, "_check", lambda name, *rest: seen.append((name, rest[1])) or "")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    kernels._log_unused.cache_clear()
    return seen


@pytest.mark.parametrize(
    "common, dtype",
    [
        ({"bf16": True}, torch.bfloat16),
        ({"memory_efficient_fp16": True}, torch.float16),
        ({"amp": True}, torch.float16),
        ({}, None),
    ],
)
def test_a_new_training_checks_the_kernels_of_its_model(checked, common, dtype):
    kernel_choice.choose_kernels(trainer(**common), None)
    assert checked == ([(name, dtype) for name in ALL] if dtype else [])
    assert kernels.in_use() == (ALL if dtype else [])


def test_layers_end_in_a_kernel_of_their_own(checked):
    """fairseq's layers when steps are captured, this package's always."""
    found = trainer(bf16=True).get_model()
    options = SimpleNamespace(cuda_graphs=True)
    found.append(TransformerEncoderLayer(Namespace(**LAYER)))
    of_layers = {("residual", 8, 1), ("residual", 16, 0), ("activation", 24, 1)}
    of_layers |= {("projections", 16)}
    assert of_layers <= set(kernel_choice._kernels_of(found, options))
    assert not of_layers & set(kernel_choice._kernels_of(found, SimpleNamespace()))
    layer = EncoderLayer(
        torch.nn.Identity(), StandardFeedForward(FeedForwardSpec(16, 32)), 16, dropout=0.0
    )
    own = {("residual", 16, 0), ("activation", 32, 0)}
    assert set(kernel_choice._kernels_of(layer, SimpleNamespace())) == own


def test_captured_steps_compute_fairseqs_loss_in_chunks(checked, build):
    given = trainer(cuda_graphs=True, bf16=True)
    model, words = build(arch="transformer"), given.get_criterion().task
    given.get_model, given.get_criterion = lambda: model, lambda: Plain(words, False, 0.1)
    kernel_choice.choose_kernels(given, None)
    assert ("cross_entropy", torch.bfloat16) in checked


def test_layers_that_are_too_large_for_a_kernel_name_none():
    size = 2 * kernels.MAX_SUBSPACE
    large = [
        MSCFFN(FeedForwardSpec(2 * size, 8), MSCFFNOptions(subspaces=2, expansion=1)),
        Fastformer(MixerSpec(1024, 1024, 32)),
    ]
    layer = EncoderLayer(torch.nn.Identity(), torch.nn.Identity(), 2 * kernels.MAX_FEATURES)
    model = torch.nn.ModuleList([*large, layer])
    assert list(kernel_choice._kernels_of(model, SimpleNamespace())) == []


@pytest.mark.parametrize(
    "began_with, variable, expected",
    [
        (ALL, None, ALL),
        (["products"], None, ["products"]),
        ([], None, []),
        ([], "1", []),
        (ALL, "0", []),
    ],
)
def test_a_training_resumes_with_the_kernels_it_began_with(
    checked, monkeypatch, caplog, began_with, variable, expected
):
    if variable:
        monkeypatch.setenv(kernels.VARIABLE, variable)
    kernel_choice.choose_kernels(trainer(bf16=True), began_with)
    monkeypatch.setenv(kernels.VARIABLE, "1")
    assert kernels.in_use() == expected
    if variable is None:  # also of those that no module of the model names
        assert kernels._off == set(kernels.NAMES) - set(began_with or [])
    told = [record.message for record in caplog.records]
    assert len(told) == (expected != ALL and variable != "0")
    assert all("this training began without them" in line for line in told)


def test_the_choice_is_stored_and_read(
    checked, monkeypatch, run_train, toy_data, train_args, tmp_path
):
    """By the real commands, in a checkpoint that loads safely."""
    seen = []
    monkeypatch.setattr(
        kernel_choice,
        "choose_kernels",
        lambda trainer, began_with: seen.append(began_with),
    )
    monkeypatch.setattr(kernels, "in_use", lambda: ["products"])
    for updates in (1, 2):
        words = ("--max-update", updates, "--save-dir", tmp_path, "--cpu")
        run_train(toy_data.bin, *train_args, *words)
    assert seen == [None, ["products"]]


def choose(rank, folder, values, faults):
    """One of two processes, on whose GPU a kernel may be broken."""
    os.environ[kernels.VARIABLE] = values[rank]
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    kernels._check = lambda name, *rest: "it differs" * (name == faults[rank])
    try:
        kernel_choice.choose_kernels(trainer(bf16=True), None)
        os.environ[kernels.VARIABLE] = "1"
        told = ",".join(kernels.in_use())
    except ConfigurationError as error:
        told = str(error)
    (folder / str(rank)).write_text(told)
    dist.barrier()


@pytest.mark.skipif(torch.cuda.is_available(), reason="processes are forked")
@pytest.mark.parametrize(
    "values, faults, expected",
    [
        ("11", ("", ""), ",".join(ALL)),
        ("11", ("", "products"), "additive_attention,cross_entropy"),
        ("10", ("", ""), ""),
        ("1x", ("", ""), "rank 1: FAIRSEQ_PLUGINS_TRITON=x: set it to 0 (plain torch) or 1"),
    ],
)
def test_all_processes_use_the_same_kernels(checked, tmp_path, values, faults, expected):
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=choose, args=(i, tmp_path, values, faults)) for i in (0, 1)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    (told,) = {(tmp_path / str(rank)).read_text() for rank in (0, 1)}
    assert told.startswith(expected) and bool(told) == bool(expected)
