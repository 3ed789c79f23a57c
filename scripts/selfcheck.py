"""Prints what is set up, and fails with one line if the plugin cannot work here."""

import importlib
import importlib.metadata
import platform
import shutil
import sys

# pip chooses torch's build for the newest CUDA; older drivers and GPUs need another
CURE = (
    f"uninstall it ({sys.executable} -m pip uninstall torch), then rerun install.sh with "
    "--torch-index and the index of a build for this GPU and driver (pytorch.org, Get Started)"
)


def describe_gpu(torch) -> list[str]:
    """One line a GPU that torch sees, and why it cannot be used; else why there is none."""
    if torch.cuda.is_available():
        lines = []
        for number in range(torch.cuda.device_count()):
            lines.append(f"GPU              {torch.cuda.get_device_name(number)}")
            try:
                (torch.ones(1, device=f"cuda:{number}") + 1).item()
            except RuntimeError as error:
                cause = str(error).strip().splitlines()[0]
                build = f"torch {torch.__version__} (CUDA {torch.version.cuda})"
                lines.append(
                    f"Warning: {build} does not run on this GPU: {cause}. Change it: {CURE}"
                )
        return lines
    lines = ["GPU              none seen: everything runs on the CPU"]
    if shutil.which("nvidia-smi"):
        if torch.version.cuda:
            reason = f"its CUDA {torch.version.cuda} needs a newer driver; or {CURE}"
        else:
            reason = (
                "it is the CPU build; uninstall it and run install.sh --device gpu to change it"
            )
        lines.append("Warning: nvidia-smi is here, but torch sees no GPU: " + reason)
    return lines


def main() -> int:
    print(f"Python           {platform.python_version()}  {sys.executable}")
    for module, package in [
        ("torch", "torch"),
        ("fairseq_plugins", "fairseq-plugins"),
        ("fairseq", "fairseq-fixed"),
    ]:
        try:
            importlib.import_module(module)
        except Exception as error:
            cause = " ".join(str(error).split())
            print(
                f"selfcheck: {module} cannot be imported: {type(error).__name__}: {cause}",
                file=sys.stderr,
            )
            return 1
        print(f"{package:16s} {importlib.metadata.version(package)}")

    torch = sys.modules["torch"]
    print("\n".join(describe_gpu(torch)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
