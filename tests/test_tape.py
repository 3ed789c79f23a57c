"""`Tape` names each operation that a CUDA graph could not capture, with its line."""

import numpy as np
import pytest
import torch

from tests.tape import HostWaits, Tape

# the name that the message begins with, and what waits; x has four numbers
WAITS = [
    ("cpu", lambda x: x.cpu()),
    ("to", lambda x: x.to(device="cpu", dtype=torch.float64)),
    ("tolist", lambda x: str(x)),
    ("numpy", lambda x: np.asarray(x)),
    ("_local_scalar_dense", lambda x: bool((x > 0).all())),
    ("equal", lambda x: torch.equal(x, x)),
    ("lift_fresh", lambda x: torch.tensor([1.0])),
    ("multinomial", lambda x: x.multinomial(1)),
    ("nonzero", lambda x: torch.where(x > 0)),
    ("index", lambda x: x[x > 0]),
    ("index_put_", lambda x: x.clone().index_put_([x > 0], x)),
    ("repeat_interleave", lambda x: torch.repeat_interleave(x, x.long())),
]
ALLOWED = [
    lambda x: x.to(x.device, torch.float64),
    lambda x: x[x.long() % 4],
    lambda x: torch.where(x > 0, x, 0.0),
    lambda x: torch.repeat_interleave(x, x.long(), output_size=10),
    lambda x: x.repeat_interleave(2),
    lambda x: x.prod(),
]
# their own backward waits
IN_BACKWARD = [
    ("prod", lambda x: x.prod()),
    ("cumprod", lambda x: x.cumprod(0)),
    ("masked_scatter", lambda x: x.masked_scatter(x > 0, x)),
]


def capture(function, backward):
    """Call it in forward, or in backward with the same input."""
    x = torch.arange(1.0, 5.0, requires_grad=backward)
    with Tape().capturing():
        if backward:
            y = x.clone()
            y.register_hook(lambda gradient: (function(x.detach()), None)[1])
            torch.autograd.grad(y.sum(), x)
        else:
            function(x)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name, wait", WAITS)
def test_what_waits_is_named_with_its_line(name, wait, backward):
    with pytest.raises(HostWaits) as error:
        capture(wait, backward)
    line = f"{__file__}:{wait.__code__.co_firstlineno}: "
    assert str(error.value).startswith((f"{name} cannot", f".{name}() cannot"))
    assert line in str(error.value) and "lambda x: " in str(error.value)
    wait(torch.ones(4))  # behind the capture, nothing is refused


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("function", ALLOWED)
def test_what_does_not_wait_is_captured(function, backward):
    capture(function, backward)


@pytest.mark.parametrize("name, function", IN_BACKWARD)
def test_what_waits_in_a_backward_of_torchs_is_named_in_forward(name, function):
    x = torch.ones(4, requires_grad=True)
    with pytest.raises(HostWaits, match=rf"^{name} cannot be captured: .*test_tape.py:\d+: "):
        with Tape().capturing():
            torch.autograd.grad(function(x).sum(), x)
