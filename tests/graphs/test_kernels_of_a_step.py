"""The kernels that a captured step launches on a GPU, counted without one and without memory."""

import collections
import contextlib
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from fairseq_plugins.data.packed_batches import pack_pairs
from fairseq_plugins.graphs.captured_step import CapturedStep, make_spec
from fairseq_plugins.lab.benchmarks import contenders
from fairseq_plugins.layers import kernels, packed
from fairseq_plugins.models.packed import store_projections_together
from fairseq_plugins.train.kernel_choice import _kernels_of
from tests.layers.test_kernels import DEVICE, needs_triton
from tests.tape import Launches

# ATen's operations on the way that launch no kernel
SIZES_ALONE = {"empty_strided", "is_same_size", "new_empty_strided", "promote_types"}
WORDS = "--dropout 0.3 --criterion label_smoothed_cross_entropy_fused"


@pytest.fixture
def count(monkeypatch):
    """Counts the kernels of a step of 4,096 tokens, by name."""
    from triton.runtime.interpreter import GridExecutor

    launches, asked = Launches(), set()
    monkeypatch.setattr(
        GridExecutor, "__call__", lambda self, *args, **kwargs: launches.names.append("triton")
    )
    monkeypatch.setattr(kernels, "usable", lambda x, *kernel: asked.add(kernel) or True)
    monkeypatch.setattr(kernels, "is_on_gpu", lambda x: True)
    monkeypatch.setattr(packed, "has_flash", lambda query: True)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *given: False)
    monkeypatch.setattr(torch, "autocast", lambda *a, **k: contextlib.nullcontext())
    monkeypatch.setattr(
        functional, "dropout", lambda x, p, *_, **__: torch.native_dropout(x, p, True)[0]
    )

    def run(words):
        contender = contenders.build_without_data(f"{words} {WORDS}", "", 4000, "bf16", True)
        model = contender.model.bfloat16().train()
        spec = make_spec(model)
        lengths = torch.arange(5, 50).repeat(3).tolist()
        pairs = [{"source": torch.full((n,), 5), "target": torch.full((n,), 6)} for n in lengths]
        batch = pack_pairs(pairs, 2, spec)
        model = model.to("meta")
        store_projections_together(model)
        parameters = list(model.parameters())
        flat = SimpleNamespace(
            parameters=parameters,
            gradient=torch.empty(sum(p.numel() for p in parameters), device="meta"),
            new_graph=None,
        )
        criterion = contender.task.build_criterion(contender.cfg.criterion)
        step = CapturedStep(model, criterion, flat, spec)
        launches.names.clear()
        asked.clear()
        with launches:
            step.once(batch.shape, batch.numbers.to("meta"))
        options = SimpleNamespace(cuda_graphs=True)
        checked = {*_kernels_of(model, options), *_kernels_of(criterion, options)}
        assert asked == checked, "a training checks them before its first step"
        return [name for name in launches.names if name not in SIZES_ALONE]

    return run


@needs_triton
@pytest.mark.skipif(DEVICE == "cuda", reason="counts the launches of Triton's interpreter")
def test_kernels_of_a_step(count):
    """Losses, and each bias, residual, gradient of a norm's two uses, pooling and seed."""
    transformer, ftc = count("transformer_iwslt_de_en"), count("transformer_ftc_iwslt_de_en")
    assert len(transformer) <= 454, collections.Counter(transformer)
    # pooling 4, a projection to queries alone 4, layout of pooled rows 3, sums of gradients 3
    assert len(ftc) - len(transformer) <= 14, collections.Counter(ftc)
    of_layers = 1 + 3 * (30 + 12) + 2 * 12  # loss, ends of sublayers, activations, projections
    assert transformer.count("triton") == of_layers and ftc.count("triton") == of_layers + 4 - 2
    # reductions for the biases of six queries and all keys and values across, and one of the loss
    assert transformer.count("sum") <= 8 and transformer.count("cat") <= 3
    assert transformer.count("embedding_dense_backward") == 2
    shared = count("transformer_iwslt_de_en --share-all-embeddings")
    assert shared.count("embedding_dense_backward") == 1
    assert transformer.count("random_") == ftc.count("random_") == 1
