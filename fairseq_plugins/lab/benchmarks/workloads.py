"""Workloads: one training step or one inference of a contender, on random input.

A workload runs a single module, the encoder of a model, or a whole model. A `Setting` holds plain
values only, so that a fresh process can rebuild the workload.
"""

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
    """Base class. `step` is timed; `loss` runs forward only and returns the loss with its graph."""

    module: nn.Module

    def __init__(self, setting: Setting):
        self.setting = setting

    def set_input(self, length: int, sentences: int, target_length: int) -> None:
        raise NotImplementedError

    def loss(self) -> Tensor:
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError

    def warm_up(self) -> None:
        """Run one step on a small input, to create the optimizer's state and load lazy imports."""
        self.set_input(min(8, self.setting.length), 1, min(8, self.setting.target_length))
        self.step()
        self.set_input(self.setting.length, self.setting.sentences, self.setting.target_length)

    def parameters(self) -> int:
        return contenders.count_parameters(self.module)


class ModuleWorkload(Workload):
    """Forward, or forward and backward, of one module; no optimizer."""

    def __init__(self, words: str, setting: Setting):
        super().__init__(setting)
        module = modules.build_module(words, setting.sizes)
        self.dim = modules.module_options(words, setting.sizes).dim
        self.module = module.to(setting.device, DTYPES[setting.dtype])
        self.module.train(setting.what == "training")

    def set_input(self, length: int, sentences: int, target_length: int) -> None:
        torch.manual_seed(1)
        x = torch.randn(length, sentences, self.dim)
        self.x = x.to(self.setting.device, DTYPES[self.setting.dtype])
        self.x.requires_grad_(self.setting.what == "training")

    def loss(self) -> Tensor:
        return self.module(self.x).sum()

    def step(self) -> None:
        if self.setting.what == "forward":
            with torch.no_grad():
                self.module(self.x)
            return
        self.x.grad = None
        self.module.zero_grad(set_to_none=True)
        # a dense gradient, as in real training; ones only where the shape of the output differs
        out = self.module(self.x)
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

    def set_input(self, length: int, sentences: int, target_length: int) -> None:
        self.source = random_tokens(self.setting, sentences, length)
        self.lengths = torch.full((sentences,), length, device=self.source.device)

    def loss(self) -> Tensor:
        return self.module(self.source, self.lengths)["encoder_out"][0].float().pow(2).mean()

    def step(self) -> None:
        if self.setting.what == "forward":
            with torch.no_grad():
                self.module(self.source, self.lengths)
            return
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

    def set_input(self, length: int, sentences: int, target_length: int) -> None:
        source = random_tokens(self.setting, sentences, length)
        target = random_tokens(self.setting, sentences, target_length)
        self.batch: dict[str, Any] = {
            "id": torch.arange(sentences),
            "nsentences": sentences,
            "ntokens": target.numel(),
            "net_input": {
                "src_tokens": source,
                "src_lengths": torch.full((sentences,), length, device=source.device),
                "prev_output_tokens": target.roll(1, dims=1),
            },
            "target": target,
        }

    def loss(self) -> Tensor:
        with contenders.forward_precision(self.trainer):
            return self.trainer.criterion(self.module, self.batch)[0]

    def step(self) -> None:
        if self.setting.what == "forward":
            with torch.no_grad():
                self.module(**self.batch["net_input"])
            return
        self.trainer.train_step([self.batch], raise_oom=True)


def build_model(words: str, setting: Setting, dtype: str) -> contenders.Contender:
    """Build the model with enough positions for the setting; options in the words override this."""
    source, target = max(1024, setting.length), max(1024, setting.target_length)
    positions = f"--max-source-positions {source} --max-target-positions {target} "
    options = positions + setting.options
    on_cpu = setting.device == "cpu"
    return contenders.build_without_data(words, options, setting.vocabulary, dtype, on_cpu)


def random_tokens(setting: Setting, sentences: int, length: int) -> Tensor:
    """Random int64 tokens, B x T, without padding; each sentence ends in </s>.

    The seed is fixed, so that every contender gets the same tokens.
    """
    torch.manual_seed(1)
    tokens = torch.randint(4, setting.vocabulary, (sentences, length))
    tokens[:, -1] = 2
    return tokens.to(setting.device)


def build(words: str, setting: Setting) -> Workload:
    """Build and warm up the workload of a contender: a module or architecture, with options.

    Raises:
        ConfigurationError: the name is neither a module nor an architecture, or options are
            invalid.
    """
    torch.set_num_threads(setting.threads)
    if modules.is_module(words):
        workload: Workload = ModuleWorkload(words, setting)
    elif setting.part == "encoder":
        workload = EncoderWorkload(words, setting)
    else:
        workload = ModelWorkload(words, setting)
    workload.warm_up()
    return workload
