"""The precision of a training: from the machine, the user or the run that is resumed."""

import argparse

from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.system import cpu

PRECISIONS = ("auto", "fastest", "bf16", "fp16", "fp32")
AUTOMATIC = ("auto", "fastest")  # chosen by the machine, or by the run to resume
HELP = (
    "auto: bf16 on a GPU that supports it, fp16 on other GPUs, fp32 on a CPU; fastest: the same, "
    "but bf16 on a CPU that has instructions for it"
)


def choose(
    asked: str,
    given: argparse.Namespace,
    on_cpu: bool,
    before: str | None = None,
    finished: bool = False,
) -> str:
    """The precision to train in: bf16, fp16, amp or fp32.

    Args:
        asked: one of `PRECISIONS`.
        given: the other options.
        on_cpu: whether the CPU trains.
        before: the precision of the training to resume. "auto" and "fastest" keep it, as the
            optimizer's state fits no other.
        finished: whether nothing is left to train; then any machine will do.
    """
    halves = [half for half in ("bf16", "fp16", "amp") if getattr(given, half)]
    if halves:
        if asked not in AUTOMATIC:
            raise ConfigurationError(
                f"--precision {asked} and {' '.join(map(flag, halves))}, which the recipe, "
                "--settings or the options after -- give: remove one"
            )
        return halves[0]
    if asked == "fp16" and on_cpu:
        raise ConfigurationError("--precision fp16 needs a GPU: use bf16 or fp32 on a CPU")
    if asked in AUTOMATIC and before in PRECISIONS:
        missing = on_cpu if before == "fp16" else not (on_cpu or gpus_have_bf16())
        if before != "fp32" and missing and not finished:
            raise ConfigurationError(
                f"this training is in {before}, which this machine does not support, and its "
                "optimizer state fits no other precision: resume it where it has run, or "
                "start again in another folder"
            )
        asked = before
    if asked in AUTOMATIC:
        if on_cpu:
            asked = "bf16" if asked == "fastest" and cpu.has_bf16() else "fp32"
        else:
            asked = "bf16" if gpus_have_bf16() else "fp16"
    return asked


def gpus_have_bf16() -> bool:
    """Whether all GPUs have bf16 in hardware; torch.cuda.is_bf16_supported counts emulation too."""
    import torch  # slow, and a command's help needs only the names

    if torch.version.hip is not None:
        return torch.cuda.is_bf16_supported()
    return all(
        torch.cuda.get_device_capability(gpu) >= (8, 0) for gpu in range(torch.cuda.device_count())
    )
