"""The same on a GPU: float64 equals the CPU, half precision is finite."""

import pytest
import torch

from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS
from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS
from tests.batches import assert_close, half
from tests.models.test_encoder import CHOICES, build_combination, encode, encoder_leaves

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


every_part = [
    *half(*CHOICES),
    *((mixer, "standard", "both") for mixer in TOKEN_MIXERS),
    *(("softmax", feed_forward, "both") for feed_forward in FEED_FORWARDS),
]
every_part = pytest.mark.parametrize(
    "mixer, feed_forward, compression", list(dict.fromkeys(every_part))
)


@every_part
def test_gpu_equals_cpu(build, make_tokens, mixer, feed_forward, compression):
    model = build_combination(build, mixer, feed_forward, compression)
    tokens = make_tokens((4, 1, 9, 2))
    expected = [rows.detach() for rows in encode(model, tokens)]
    for rows, true in zip(encode(model.cuda(), tokens.cuda()), expected):
        assert_close(rows.cpu(), true)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_part
def test_half_precision_is_finite(build, make_tokens, mixer, feed_forward, compression, dtype):
    model = build_combination(build, mixer, feed_forward, compression).cuda().to(dtype)
    rows = encode(model, make_tokens((0, 1, 60)).cuda())
    sum(row.float().pow(2).mean() for row in rows[1:]).backward()
    for name, parameter in encoder_leaves(model).items():
        assert torch.isfinite(parameter.grad).all(), name
