"""What is shipped, and the scripts that set it up: choices and refusals, no whole installation."""

import functools
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fairseq_plugins.cli import RUN_EXPORTS, commands
from fairseq_plugins.version import __version__

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "scripts").glob("*.sh")) + sorted((ROOT / "examples").glob("**/*.sh"))
LAUNCHERS = [
    path
    for path in sorted((ROOT / "scripts").glob("*.py"))
    if "fairseq_plugins.cli import main" in path.read_text(encoding="utf-8")
]


def run(*command, cwd=ROOT, **environment):
    """Runs a program with its errors apart, in an environment that could mislead it.

    bash warns of a locale that is not installed, and `cd` prints the folder where CDPATH is set.
    """
    usual = {**os.environ, "LC_ALL": "C.UTF-8", "CDPATH": "."}
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 1200}
    return subprocess.run(
        list(map(str, command)), cwd=str(cwd), env={**usual, **environment}, **options
    )


bash = functools.partial(run, "bash")


def common(command):
    """The output of a shell command that may use the functions in scripts/common.sh."""
    result = bash("-euc", "root=. && source scripts/common.sh && " + command)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def executable(path, text):
    path.write_text("#!/bin/sh\n" + text + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path):
    return copy_checkout(tmp_path)


def copy_checkout(place):
    """A copy of what the installer reads, in a folder whose name has a space."""
    folder = place / "a checkout"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    (folder / "fairseq_plugins").mkdir()
    for name in "setup.py pyproject.toml README.md LICENSE fairseq_plugins/version.py".split():
        shutil.copy(ROOT / name, folder / name)
    return folder


def install(checkout, *words, **environment):
    """The installer's exit status and lines of error, called from elsewhere."""
    script = checkout / "scripts" / "install.sh"
    result = bash(script, *words, cwd=checkout.parent.parent, **environment)
    return result.returncode, result.stderr.splitlines()


# --- the package ----------------------------------------------------------------------------------


def test_the_wheel_holds_every_file_and_says_what_it_needs(checkout, tmp_path):
    whole = {"ignore": shutil.ignore_patterns("__pycache__"), "dirs_exist_ok": True}
    shutil.copytree(ROOT / "fairseq_plugins", checkout / "fairseq_plugins", **whole)
    card = checkout / "fairseq_plugins" / "pretrained" / "a-b" / "CARD.md"  # of a model in the box
    card.parent.mkdir()
    card.touch()
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run(command + ["--wheel-dir", str(tmp_path), str(checkout)], check=True)
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(str(path)) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        fields = Parser().parsestr(wheel.read(metadata).decode("utf-8"))
    files = (checkout / "fairseq_plugins").rglob("*")
    assert packed == {str(f.relative_to(checkout)) for f in files if f.is_file()}
    assert "fairseq_plugins/recipes/translation/transformer_ftc.yaml" in packed
    assert fields["Version"] == __version__

    needs = [Requirement(text) for text in fields.get_all("Requires-Dist")]
    needed = {need.name: str(need.specifier) for need in needs if need.marker is None}
    assert common("fairseq_requirement") == ["fairseq-fixed" + needed["fairseq-fixed"]]
    # no upper bounds: pip never replaces an installed torch, nor refuses a new Python
    assert needed["torch"] == ">=2.10" and fields["Requires-Python"] == ">=3.11"


def test_readme_installs_what_serving_needs():
    """Without a checkout, as from a git address, there is no file of requirements."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"pip install (.*) && pip install --no-deps \.", readme)
    lines = (ROOT / "examples/deploy/requirements.txt").read_text(encoding="utf-8").splitlines()
    assert named.split() == [Requirement(line).name for line in lines if line[0] != "#"]
    assert {name.replace("-", "_") for name in named.split()} == RUN_EXPORTS


@pytest.mark.parametrize(
    "words, printed", [([], ROOT / "fairseq_plugins"), (["--version"], __version__)]
)
def test_the_package_prints_its_folder_or_version_and_nothing_else(words, printed, tmp_path):
    command = [sys.executable, "-m", "fairseq_plugins", *words]
    result = run(*command, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert (result.stdout, result.stderr) == (f"{printed}\n", "")


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda path: path.stem)
def test_a_launcher_names_a_command_that_exists(launcher):
    """Without the package, the error names the script that sets it up."""
    text = launcher.read_text(encoding="utf-8")
    command = re.search(r'main\(\["([a-z0-9-]+)"', text).group(1)
    assert f"`fairseq-plugins {command}" in text
    assert command in commands()
    alone = run(sys.executable, "-S", "-E", launcher, cwd="/")
    assert alone.returncode == 1 and alone.stdout == ""
    assert alone.stderr == (
        "fairseq_plugins is not installed in this Python: run bash scripts/install.sh\n"
    )


# --- the scripts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_is_sound_bash(script):
    assert bash("-n", script).stderr == ""
    shellcheck = shutil.which("shellcheck", path=os.path.dirname(sys.executable))
    shellcheck = shellcheck or shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (scripts/install.sh --extras test)")
    assert run(shellcheck, "-x", script).stdout == ""


REJECTED = [
    ("install", "--bogus", "unknown option --bogus"),
    ("install", "--python", "--python needs a value"),
    ("install", "--python /nowhere/python", "Python /nowhere/python: there is no such command"),
    ("install", "--device tpu", "--device tpu: choose auto, cpu, gpu or none"),
    ("install", "--extras all", "--extras all: choose from onnx,plot,textrank,test"),
    ("install", "--extras plot,all", "--extras all: choose from onnx,plot,textrank,test"),
    ("install", "--offline /nowhere", "--offline /nowhere: there is no such folder"),
    ("install", "--offline .", "--offline .: it holds no wheels"),
    ("install", "--print-python", "nothing is set up yet"),
    ("wheelhouse", "", "name the folder to fill"),
    ("wheelhouse", "a b", "one folder only, not a and b"),
    ("wheelhouse", "a --python 3.10", "--python 3.10: choose 3.11 or newer, such as 3.12"),
    ("wheelhouse", "a --extras all", "--extras all: choose from onnx,plot,textrank,test"),
]


@pytest.mark.parametrize("script, words, message", REJECTED)
def test_mistakes_are_rejected_in_one_line(checkout, script, words, message):
    result = bash(checkout / "scripts" / f"{script}.sh", *words.split(), cwd=checkout.parent.parent)
    (error,) = result.stderr.splitlines()
    assert result.returncode == 1 and error.startswith(f"{script}.sh: {message}")
    assert not (checkout / ".venv").exists() and not (checkout.parent.parent / "a").exists()


@pytest.mark.parametrize(
    "behaviour, message",
    [
        ("echo 2.7", "Python 2.7 .* is too old: 3.11 or newer is needed"),
        ("echo 3.10", "Python 3.10 .* is too old: 3.11 or newer is needed"),
        ("exit 127", "Python .* does not run; give another interpreter"),
        # Debian's Python without its venv package: whatever imports ensurepip fails
        (
            'case "$*" in *ensurepip*) exit 1 ;; *version_info*) echo 3.11 ;; esac',
            "Python 3.11 .* cannot make virtual environments: install python3.11-venv",
        ),
    ],
)
def test_an_unfit_python_gets_one_line(checkout, behaviour, message):
    python = executable(checkout / "python", behaviour)
    status, errors = install(checkout, "--python", python)
    assert status == 1 and len(errors) == 1
    assert re.match("install.sh: " + message, errors[0])
    assert not (checkout / ".venv").exists()


@pytest.fixture(scope="module")
def made_checkout(tmp_path_factory):
    """A checkout whose .venv the first installation makes, which takes seconds."""
    return copy_checkout(tmp_path_factory.mktemp("made"))


@pytest.fixture
def install_cuda_torch(made_checkout, tmp_path):
    """install_cuda_torch(nvidia_smi): the result where an index has torch 2.13.0 for CUDA 13 alone.

    `nvidia_smi` is the program's text; what uv is asked for is in tmp_path / "asked", and uv fails.
    """
    index, tools = tmp_path / "index", tmp_path / "tools"
    index.mkdir()
    tools.mkdir()
    with zipfile.ZipFile(str(index / "torch-2.13.0-py3-none-any.whl"), "w") as wheel:
        info = "torch-2.13.0.dist-info/"
        metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n"
        needed = "Requires-Dist: nvidia-cublas\nRequires-Dist: cuda-toolkit[cudart]==13.0.2\n"
        wheel.writestr(info + "METADATA", metadata + needed)
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    executable(tools / "uv", f'echo "$@" >"{tmp_path}/asked"; exit 2')

    def run(nvidia_smi):
        executable(tools / "nvidia-smi", nvidia_smi)
        command = [made_checkout / "scripts" / "install.sh", "--python", sys.executable]
        pip = {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(index)}
        environment = {f"PIP_{name}": value for name, value in pip.items()}
        environment["PATH"] = str(tools) + os.pathsep + os.environ["PATH"]
        return bash(*command, "--torch", "2.13.0", **environment)

    return run


@pytest.mark.slow
def test_without_a_gpu_the_cuda_build_is_refused(install_cuda_torch, made_checkout, tmp_path):
    """The only torch that this package index has asks for CUDA libraries, and uv finds no other."""
    result = install_cuda_torch("exit 9")
    (error,) = result.stderr.splitlines()
    assert result.returncode == 1 and "no CPU build of torch==2.13.0 was found" in error
    assert "--device gpu" in error and "--torch-index" in error
    assert "--torch-backend=cpu" in (tmp_path / "asked").read_text(encoding="utf-8")
    assert not list((made_checkout / ".venv").glob("lib/*/site-packages/torch*"))


@pytest.mark.slow
@pytest.mark.parametrize("cuda, fits", [("12.4", False), ("13.0", True), ("", True), ("N/A", True)])
def test_a_driver_too_old_for_a_build_of_torch_gets_another(
    install_cuda_torch, tmp_path, cuda, fits
):
    header = f"| Driver Version: 550.54       CUDA Version: {cuda}     |" if cuda else "| Driver |"
    smi = f"if [ \"$1\" = -L ]; then echo 'GPU 0: a GPU'; else echo '{header}'; fi"
    result = install_cuda_torch(smi)
    assert result.returncode == 1  # the CUDA libraries are nowhere
    assert ("torch==2.13.0, the build for a gpu" in result.stdout) == fits
    told = f"runs CUDA {cuda.split('.')[0]} at most, and torch==2.13.0 here needs CUDA 13"
    assert (told in result.stdout) == ("none was found" in result.stdout) == (not fits)
    assert (tmp_path / "asked").exists() == (not fits)
    if not fits:
        asked = (tmp_path / "asked").read_text(encoding="utf-8")
        assert "--torch-backend=auto" in asked and "torch==2.13.0" in asked


def test_a_copied_checkout_leaves_the_environment_of_the_original_alone(checkout, tmp_path):
    original = tmp_path / "original" / ".venv" / "bin" / "python3"
    original.parent.mkdir(parents=True)
    executable(original, "echo 3.11")
    (checkout / ".install").mkdir()

    def remember(folder):
        lines = [str(original), "fingerprint", "", str(folder)]
        (checkout / ".install" / "environment").write_text("\n".join(lines) + "\n")

    remember(checkout)  # --active in that environment
    assert bash(checkout / "scripts" / "install.sh", "--print-python").stdout == f"{original}\n"
    remember(tmp_path / "original")
    told = "install.sh: nothing is set up yet: run bash scripts/install.sh"
    assert install(checkout, "--print-python") == (1, [told])


@pytest.mark.parametrize("status, waits", [(71, False), (1, True)])
def test_a_file_system_without_locks_is_no_other_set_up(checkout, tmp_path, status, waits):
    tools = tmp_path / "tools"
    tools.mkdir()
    executable(tools / "flock", f'case "$*" in *-n*) exit {status} ;; esac')
    python = executable(
        checkout / "python", 'case "$*" in *version_info*) echo 3.11 ;; *) exit 1 ;; esac'
    )
    path = str(tools) + os.pathsep + os.environ["PATH"]
    result = bash(checkout / "scripts" / "install.sh", "--python", python, PATH=path)
    assert ("Another set-up" in result.stdout) == waits
    assert "cannot make virtual environments" in result.stderr


def test_a_set_up_without_torch_is_completed_by_a_rerun(checkout, tmp_path):
    """With a Python that only writes down what it is asked for."""
    asked = tmp_path / "asked"
    python = executable(
        checkout / "python",
        f"""case "$*" in *sys.executable*) echo "$0" ;; *version_info*) echo 3.11 ;;
        *) echo "$@" >>"{asked}" ;; esac""",
    )
    words = ["--active", "--python", python, "--device"]
    assert install(checkout, *words, "none") == (0, [])
    assert install(checkout, "--print-python") == (0, [])
    (installed,) = [line for line in asked.read_text().splitlines() if "pip install" in line]
    assert installed.endswith("examples/deploy/requirements.txt")
    # from an index that is given, so that none is searched for the build
    assert install(checkout, *words, "cpu", "--torch-index", "http://index.invalid") == (0, [])
    rest = asked.read_text()
    assert "pip install --index-url http://index.invalid torch==" in rest and "--editable" in rest


def test_a_wheel_with_a_changed_byte_is_damaged(tmp_path):
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(str(wheel), "w") as archive:
        archive.writestr("module.py", "x = 1")
    check = f"intact {sys.executable} {wheel} && echo intact || echo damaged"
    assert common(check) == ["intact"]
    wheel.write_bytes(wheel.read_bytes().replace(b"x = 1", b"x = 2"))
    assert common(check) == ["damaged"]


def test_progress_that_ends_at_once_keeps_the_scratch_folder(tmp_path):
    """A subshell that has just begun still has the EXIT trap of the script."""
    done = bash(
        "-euc",
        f"""log={tmp_path}/log; scratch=$(mktemp -d -p {tmp_path}); trap 'rm -rf "$scratch"' EXIT
        source scripts/environment.sh
        for _ in {{1..50}}; do logged true && ls "$scratch"; done""",
    )
    assert (done.returncode, done.stderr) == (0, "")
