"""`--store-ema`: a moving average of every parameter, each once."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.models.ema.ema import EMA

from fairseq_plugins import compat

compat.apply()


@pytest.mark.parametrize("float32", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shared_weights_decay_like_others(float32, dtype):
    model = torch.nn.Module()
    model.embedding = torch.nn.Embedding(3, 2)
    model.output = torch.nn.Linear(2, 3)
    model.output.weight = model.embedding.weight
    model.register_buffer("seed", torch.tensor([7]))
    model.performer = torch.nn.Module()
    model.performer.register_buffer("directions", torch.zeros(2))
    model.to(dtype)
    torch.nn.init.zeros_(model.embedding.weight)
    torch.nn.init.zeros_(model.output.bias)
    average = EMA(model, SimpleNamespace(
        ema_decay=0.75, ema_fp32=float32, ema_seed_model=None, ema_update_freq=1, ema_start_update=0
    ))  # fmt: skip
    torch.nn.init.ones_(model.embedding.weight)
    torch.nn.init.ones_(model.output.bias)
    model.seed += 1
    model.performer.directions += 1  # drawn again
    for expected in (0.25, 0.4375):
        average.step(model)
        found = average.get_model()
        assert found.output.weight is found.embedding.weight
        for value in (found.embedding.weight, found.output.bias):
            assert torch.equal(value, torch.full_like(value, expected))
    assert found.seed.item() == 8 and found.performer.directions.tolist() == [1, 1]
