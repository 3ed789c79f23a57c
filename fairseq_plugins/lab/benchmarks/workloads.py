"""Workloads: one training step or one inference of a contender, on random input.

A workload runs a single module, the encoder of a model, or a whole model. A `Setting` holds plain
values only, so that a fresh process can rebuild the workload.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import contenders, modules
from .harness import DTYPES

WHAT = ("training", "forward")
PARTS = ("encoder", "model")


class Setting(NamedTuple):
    """The parameters of a workload, apart from the contender's words.

    Args:
        part: "encoder" or "model", for a contender that is an architecture.
        what: "training" or "forward" (without gradients, in evaluation mode).
        length, sentences: the input's T and B; all sentences have this length, without padding.
        target_length: length of the targets, for a whole model.
        dtype: "fp32", "bf16" or "fp16".
        device: "cpu" or "cuda".
        threads: CPU threads.
        options: options of all architectures.
        sizes: options of single modules.
        vocabulary: types in the artificial dictionary.
    """

    part: str
    what: str
    length: int
    sentences: int
    target_length: int
    dtype: str
    device: str
    threads: int
    options: str
    sizes: dict[str, Any]
    vocabulary: int


class Workload:
    """The base class of workloads.

    `step` is timed. `loss` runs only forward, and returns the loss with its graph.
    """

    module: nn.Module
    set_input: Callable[[Setting], None]
    forward: Callable[[], Any]
    loss: Callable[[], Tensor]
    train: Callable[[], None]

    def __init__(self, setting: Setting):
        self.setting = setting

    def step(self) -> None:
        """Train, or run forward in evaluation."""
        if self.setting.what == "training":
            self.train()
            return
        with torch.no_grad():
            self.forward()

    def warm_up(self) -> None:
        """Run one step on a small input, to create the optimizer's state and load lazy imports."""
        whole = self.setting
        length, target_length = min(8, whole.length), min(8, whole.target_length)
        self.set_input(whole._replace(length=length, sentences=1, target_length=target_length))
        self.step()
        self.set_input(whole)

    def parameters(self) -> int:
        return contenders.count_parameters(self.module)


class ModuleWorkload(Workload):
    """Forward, or forward and backward, of one module; no optimizer."""

    def __init__(self, words: str, setting: Setting):
        super().__init__(setting)
        module, self.dim = modules.build_module(words, setting.sizes)
        self.module = module.to(setting.device, DTYPES[setting.dtype])
        self.module.train(setting.what == "training")

    def set_input(self, setting: Setting) -> None:
        torch.manual_seed(1)
        x = torch.randn(setting.length, setting.sentences, self.dim)
        self.x = x.to(setting.device, DTYPES[setting.dtype])
        self.x.requires_grad_(setting.what == "training")

    def forward(self) -> Tensor:
        return self.module(self.x)

    def loss(self) -> Tensor:
        return self.forward().sum()

    def train(self) -> None:
        self.x.grad = None
        self.module.zero_grad(set_to_none=True)
        # a dense gradient, as in real training; ones only where the shape of the output differs
        out = self.forward()
        out.backward(self.x.detach() if out.shape == self.x.shape else torch.ones_like(out))


class EncoderWorkload(Workload):
    """The encoder of a model. Training uses a loss on the encoder's output, and Adam.

    The embeddings are fixed, as in the Fastformer paper's measurement (section 4.3), because their
    cost does not depend on the encoder.
    """

    def __init__(self, words: str, setting: Setting):
        super().__init__(setting)
        built = build_model(words, setting, "fp32")
        encoder = built.model.encoder.to(setting.device, DTYPES[setting.dtype])
        encoder.embed_tokens.weight.requires_grad_(False)
        self.module = encoder.train(setting.what == "training")
        learned = [p for p in encoder.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(learned, lr=1e-4, betas=(0.9, 0.98))

    def set_input(self, setting: Setting) -> None:
        self.source, self.lengths = random_tokens(setting, setting.length)

    def forward(self) -> Tensor:
        return self.module(self.source, self.lengths)["encoder_out"][0]

    def loss(self) -> Tensor:
        return self.forward().float().pow(2).mean()

    def train(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss().backward()
        self.optimizer.step()


class ModelWorkload(Workload):
    """A whole model: fairseq's training step, or a forward pass with given targets."""

    def __init__(self, words: str, setting: Setting):
        super().__init__(setting)
        built = build_model(words, setting, setting.dtype)
        self.trainer = contenders.build_trainer(built)
        self.module = self.trainer.model.train(setting.what == "training")

    def set_input(self, setting: Setting) -> None:
        source, lengths = random_tokens(setting, setting.length)
        target, _ = random_tokens(setting, setting.target_length)
        inputs = {
            "src_tokens": source,
            "src_lengths": lengths,
            "prev_output_tokens": target.roll(1, dims=1),
        }
        self.batch: dict[str, Any] = {
            "id": torch.arange(setting.sentences),
            "nsentences": setting.sentences,
            "ntokens": target.numel(),
            "net_input": inputs,
            "target": target,
        }

    def forward(self) -> Any:
        return self.module(**self.batch["net_input"])

    def loss(self) -> Tensor:
        with contenders.forward_precision(self.trainer):
            return self.trainer.criterion(self.module, self.batch)[0]

    def train(self) -> None:
        self.trainer.train_step([self.batch], raise_oom=True)


def build_model(words: str, setting: Setting, dtype: str) -> contenders.Contender:
    """Build the model with enough positions for the setting; options in the words override this."""
    source, target = max(1024, setting.length), max(1024, setting.target_length)
    positions = f"--max-source-positions {source} --max-target-positions {target} "
    options = positions + setting.options
    on_cpu = setting.device == "cpu"
    return contenders.build_without_data(words, options, setting.vocabulary, dtype, on_cpu)


def random_tokens(setting: Setting, length: int) -> tuple[Tensor, Tensor]:
    """Random int64 tokens, B x T, without padding, and their lengths; each sentence ends in </s>.

    The seed is fixed, so that every contender gets the same tokens.
    """
    torch.manual_seed(1)
    tokens = torch.randint(4, setting.vocabulary, (setting.sentences, length))
    tokens[:, -1] = 2
    return tokens.to(setting.device), torch.full(tokens.shape[:1], length, device=setting.device)


def build(words: str, setting: Setting) -> Workload:
    """Build and warm up the workload of a contender: a module or architecture, with options.

    Raises:
        ConfigurationError: the name is neither a module nor an architecture, or options are
            invalid.
    """
    torch.set_num_threads(setting.threads)
    if modules.is_module(words):
        kind: Any = ModuleWorkload
    else:
        kind = EncoderWorkload if setting.part == "encoder" else ModelWorkload
    workload: Workload = kind(words, setting)
    workload.warm_up()
    return workload
