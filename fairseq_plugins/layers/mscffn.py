"""MSCFFN, the multi-space cross feed-forward network (Tang & Yang, Findings of EMNLP 2023)."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError, nearest
from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.dropout import new_seed, probability
from fairseq_plugins.layers.tracing import is_traced
from fairseq_plugins.options.fields import option

from .chunked_products import ChunkedProducts
from .feed_forward import FeedForward, FeedForwardSpec, register_feed_forward

SUBSPACES = 12  # the paper's n, where the dimensions allow it

# From this many tokens, the chunked form is faster on a CPU. Below, the overhead of many small
# products exceeds the cost of moving wide tensors through memory.
CHUNK_FROM = 512


@dataclass
class MSCFFNOptions(FairseqDataclass):
    subspaces: Optional[int] = option(  # noqa: UP045, fairseq reads no `|`
        None,
        "n, the subspaces of an MSCFFN: even, and a divisor of the dimension of every layer that "
        "has one. Default: 12, or the nearest number that fits (8 for 512)",
    )
    expansion: int = option(6, "m, how much wider an MSCFFN's inner layer is", least=1, most=1000)


def valid_subspaces(dims: list[int]) -> list[int]:
    """The even numbers that divide all `dims`, ascending."""
    common = functools.reduce(math.gcd, dims)
    return [n for n in range(2, common + 1, 2) if common % n == 0]


@register_feed_forward("mscffn", MSCFFNOptions)
class MSCFFN(FeedForward):
    """Multi-space cross feed-forward network (MSCFFN paper, equations 6 to 10).

    With n subspaces and expansion m::

        I    = x W_f3 + b_f3                        d -> d, cut into I_1 .. I_n of size d/n     (6)
        L_i  = I_i W_Ii + b_Ii                      d/n -> m d/n                                (7)
        C_j  = relu(L_{2j-1}) * L_{2j}              element-wise, j = 1 .. n/2                  (8)
        C_Lj = C_j W_Cj + b_Cj                      m d/n -> d/n                                (9)
        out  = [C_L1, ..., C_L(n/2)] W_CL + b_CL    d/2 -> d                                   (10)

    It takes d^2 (1.5 + 1.5 m/n) multiply-adds per token: 2.25 d^2 at m = 6, n = 12, against 8 d^2
    for the standard network with inner dimension 4 d. The gate is always relu, whatever activation
    the rest of the model uses. Residual, outer dropout and LayerNorm belong to the layer.

    Equations 7 to 9 have two exact forms. The plain one is a batched product over all subspaces.
    The chunked one (`chunked_products.py`) never holds L and C of all tokens. It is used on a CPU
    from 512 tokens on, where it is faster; set `chunked` to True or False to force a form.
    TorchScript and torch.compile use the plain form. In half precision on a GPU, Triton kernels
    replace both (`layers/kernels/`); they round the dropout to a multiple of 1 / 65,536.

    Options:
        subspaces: n, even, a divisor of d. Default: 12 as in the paper, or the nearest number that
            fits every layer. For d = 512, 8 and 16 are equally near; 8 is taken because it has
            more weights (2.6 d^2 against 2.1 d^2).
        expansion: m.

    The authors' code crosses subspace i with i + n/2; the paper, and this module, cross neighbours.
    To load its weights, put the subspaces of W_f3's outputs and of W_I in the order
    1, n/2 + 1, 2, n/2 + 2, ...

    Shape: T x B x d -> T x B x d (any number of leading dimensions).

    Raises:
        ConfigurationError (a ValueError): n is odd or does not divide d; the message names the
            nearest values that work.
    """

    chunked: bool | None  # in the class body, where TorchScript looks

    uses_ffn_embed_dim = False

    def __init__(self, spec: FeedForwardSpec, options: MSCFFNOptions | None = None):
        super().__init__()
        options = self.complete(options or MSCFFNOptions(), [spec])
        embed_dim, subspaces, expansion = spec.embed_dim, options.subspaces, options.expansion
        assert subspaces is not None
        self.embed_dim = embed_dim
        self.subspaces = subspaces
        self.expansion = expansion
        self.chunked = None
        size = embed_dim // subspaces
        pairs = subspaces // 2
        self.in_proj = nn.Linear(embed_dim, embed_dim)
        # W_I and W_C of all subspaces, stacked: one batched product each
        self.expand_weight = nn.Parameter(torch.empty(subspaces, size, expansion * size))
        self.expand_bias = nn.Parameter(torch.empty(subspaces, 1, expansion * size))
        self.contract_weight = nn.Parameter(torch.empty(pairs, expansion * size, size))
        self.contract_bias = nn.Parameter(torch.empty(pairs, 1, size))
        self.out_proj = nn.Linear(pairs * size, embed_dim)
        self.dropout_module = FairseqDropout(spec.dropout, module_name=self.__class__.__name__)
        self.reset_parameters()

    @classmethod
    def complete(cls, options: MSCFFNOptions, specs: Sequence[FeedForwardSpec]) -> MSCFFNOptions:
        """Check the number of subspaces, and choose it if it is not given."""
        dims = sorted({spec.embed_dim for spec in specs}, reverse=True)
        names = ", ".join(str(dim) for dim in dims)
        allowed = valid_subspaces(dims)
        if not allowed:
            raise ConfigurationError(
                f"MSCFFN needs an even number of subspaces, but the dimensions {names} have no "
                "even divisor in common: choose even dimensions, or another --encoder-ffn and "
                "--decoder-ffn"
            )
        if options.subspaces is None:
            nearest_to_paper = min(allowed, key=lambda n: abs(n - SUBSPACES))
            return dataclasses.replace(options, subspaces=nearest_to_paper)
        if options.subspaces not in allowed:
            raise ConfigurationError(
                f"--mscffn-subspaces {options.subspaces} must be even and divide the dimensions "
                f"{names} of the layers that have an MSCFFN: nearest that work: "
                f"{nearest(options.subspaces, allowed)}"
            )
        return options

    def reset_parameters(self) -> None:
        """Initialise like torch's nn.Linear (fairseq's fc1 and fc2): U(+-1/sqrt(fan in))."""
        for weight, bias in (
            (self.expand_weight, self.expand_bias),
            (self.contract_weight, self.contract_bias),
        ):
            bound = weight.size(1) ** -0.5
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.in_proj(x).reshape(-1, self.embed_dim)
        if torch.jit.is_scripting():
            narrow = self._products(inner)
        else:
            narrow = self._products_fast(inner)
        return self.out_proj(narrow).view(x.size())

    def _products(self, inner: Tensor) -> Tensor:
        """Equations 7 to 9 in the plain form: tokens x d -> tokens x d/2."""
        spaces = inner.view(-1, self.subspaces, self.embed_dim // self.subspaces).transpose(0, 1)
        wide = torch.baddbmm(self.expand_bias, spaces, self.expand_weight)  # n x tokens x m d/n
        crossed = self.dropout_module(torch.relu(wide[0::2]) * wide[1::2])
        narrow = torch.baddbmm(self.contract_bias, crossed, self.contract_weight)
        return narrow.transpose(0, 1).reshape(inner.size(0), self.embed_dim // 2)

    def _products_fast(self, inner: Tensor) -> Tensor:
        """Equations 7 to 9 in the fastest form for this input."""
        if self._is_chunked(inner):
            return self._products_by_chunks(inner)
        if self._has_kernel(inner):
            return self._products_by_kernel(inner)
        return self._products(inner)

    def _products_by_chunks(self, inner: Tensor) -> Tensor:
        """Equations 7 to 9 by `ChunkedProducts`; the mask uses the draws of torch's dropout."""
        p, keep, scale = probability(self.dropout_module), None, 1.0
        if p > 0:
            size = (self.subspaces // 2, inner.size(0), self.expand_weight.size(2))
            keep = torch.empty(size, dtype=torch.bool, device=inner.device).bernoulli_(1 - p)
            scale = 1 / (1 - p) if p < 1 else 0.0
        return ChunkedProducts.apply(inner, *self._parameters_as(inner), keep, scale)

    def _products_by_kernel(self, inner: Tensor) -> Tensor:
        from fairseq_plugins.layers.kernels import products

        p = probability(self.dropout_module)
        drawn = p, new_seed(inner, p)
        return products.KernelProducts.apply(inner, *self._parameters_as(inner), *drawn)

    def _parameters_as(self, inner: Tensor) -> list[Tensor]:
        """The parameters of equations 7 and 9; under autocast `inner` has another dtype."""
        own = (self.expand_weight, self.expand_bias, self.contract_weight, self.contract_bias)
        return [parameter.type_as(inner) for parameter in own]

    def _is_chunked(self, inner: Tensor) -> bool:
        if self.chunked is not None:
            return self.chunked
        on_cpu = inner.device.type == "cpu" and not is_traced()
        return on_cpu and inner.size(0) >= CHUNK_FROM

    def _has_kernel(self, inner: Tensor) -> bool:
        if self.chunked is not None or is_traced() or inner.size(0) == 0:
            return False
        return any(kernels.usable(inner, name, *sizes) for name, *sizes in self.kernels())

    def kernels(self) -> list[tuple[Any, ...]]:
        """The Triton kernels for this module, each a name and sizes as `kernels.usable` takes."""
        _, size, width = self.expand_weight.shape
        drops = int(probability(self.dropout_module) > 0)
        found = [("products", self.embed_dim, size, width, drops)]
        return found if size <= kernels.MAX_SUBSPACE else []
