"""pip, thinking of another machine: Linux, a given Python, and a torch that is there already.

    collect.py resolve --python 3.12 --torch 2.13.0+there LIST [pip's options] REQUIREMENT...
        writes to LIST, as name==version lines, what must be there beside torch.
    collect.py download --python 3.12 LIST [pip's options]
        downloads the wheels that LIST names.

pip can choose wheels for another Python, but it judges environment markers
(`python_version < "3.11"`) by the Python it runs on, and it would download torch. So the markers'
environment is replaced, and an empty wheel stands in for torch. Run by scripts/wheelhouse.sh with a
pip from 23.1 to 24.0, as this reaches into pip.
"""

import argparse
import json
import platform
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import List

from pip._internal.cli.main import main as pip
from pip._vendor.packaging import markers

# The C libraries that wheels are made for, no newer than most clusters have. What is compiled on
# this machine is plain linux.
PLATFORMS = ["manylinux_2_{}".format(minor) for minor in (28, 27, 26, 24, 17, 12, 5)]
PLATFORMS += ["manylinux2014", "manylinux2010", "manylinux1", "linux"]


def think_of_python(version: str) -> None:
    """Makes pip judge markers as CPython `version` would."""
    environment = dict(markers.default_environment())
    environment.update(
        implementation_name="cpython",
        implementation_version=version + ".0",
        platform_python_implementation="CPython",
        python_full_version=version + ".0",
        python_version=version,
    )
    markers.default_environment = lambda: environment


def target_options(version: str) -> List[str]:
    """pip's options for wheels that CPython `version` runs on Linux and this kind of processor."""
    options = ["--only-binary=:all:", "--implementation=cp", "--python-version=" + version]
    return options + ["--platform={}_{}".format(name, platform.machine()) for name in PLATFORMS]


def write_empty_torch(folder: Path, version: str) -> None:
    """Writes a wheel of torch that holds nothing and needs nothing."""
    info = "torch-{}.dist-info/".format(version)
    with zipfile.ZipFile(str(folder / "torch-{}-py3-none-any.whl".format(version)), "w") as wheel:
        metadata = "Metadata-Version: 2.1\nName: torch\nVersion: {}\n".format(version)
        wheel.writestr(info + "METADATA", metadata)
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")


def resolve(version: str, torch: str, listing: Path, words: List[str]) -> int:
    """Writes what `words` need beside torch to `listing`; returns pip's exit status."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        write_empty_torch(scratch, torch)
        report = scratch / "report.json"
        command = ["install", "--dry-run", "--ignore-installed", "--report", str(report)]
        command += ["--target", str(scratch / "target"), "--find-links", str(scratch)]
        status = pip(command + target_options(version) + words)
        if status:
            return status
        packages = [item["metadata"] for item in json.loads(report.read_text("utf-8"))["install"]]
    lines = [
        "{}=={}\n".format(package["name"], package["version"])
        for package in packages
        if package["name"] not in ("torch", "fairseq-plugins")
    ]
    listing.write_text("".join(sorted(lines, key=str.lower)), encoding="utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="See the text at the top of this file.")
    parser.add_argument("command", choices=["resolve", "download"])
    parser.add_argument("--python", required=True)
    parser.add_argument("--torch")
    parser.add_argument("list", type=Path)
    args, words = parser.parse_known_args()
    think_of_python(args.python)
    if args.command == "resolve":
        return resolve(args.python, args.torch, args.list, words)
    command = ["download", "--no-deps", "--requirement", str(args.list)]
    return pip(command + target_options(args.python) + words)


if __name__ == "__main__":
    sys.exit(main())
