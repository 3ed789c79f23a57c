"""`python -m fairseq_plugins`: quick to start, lists its commands, and runs one."""

import os
import signal
import subprocess
import sys

import pytest

from fairseq_plugins import cli
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import lead_baseline
from tests.conftest import ROOT

NAMES = list(cli.commands())


def test_help_lists_each_command_with_a_line(capsys):
    assert cli.main(["-h"]) == 0
    product, laboratory = capsys.readouterr().out.split("\n\n")[-2:]
    listed = [line for line in (product + "\n" + laboratory).splitlines() if line[:1] == " "]
    assert [line.split()[0] for line in listed] == NAMES
    assert " train " in product and " reproduce " in laboratory
    assert all(len(line) <= 100 and line.endswith(".") for line in listed)
    assert {"average", "lead-baseline"} <= set(NAMES)


def test_an_unknown_command_is_told_with_those_that_exist():
    with pytest.raises(ConfigurationError, match="^trian: no such command; did you mean train?"):
        cli.main(["trian"])


def test_a_missing_package_is_one_line_of_every_command():
    """As where `pip install --no-deps` left out what only training needs."""
    code = """
from fairseq_plugins.cli import commands, main
from fairseq_plugins.errors import ConfigurationError
for name in commands():
    try:
        main([name, "-h"])
    except ConfigurationError as error:
        print(error)
    except SystemExit:
        pass
"""
    words = [sys.executable, "-S", "-c", code]  # -S: nothing that is installed
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "train needs torch and fairseq, which are not installed: run bash" in done.stdout


@pytest.mark.parametrize(
    "error, told",
    [
        (OSError(28, "No space left on device", "out.pt"), "out.pt: No space left on device"),
        (OSError(28, "No space left on device", b"out.pt"), "out.pt: No space left on device"),
        (OSError("closed\nby the other side"), r"lead-baseline: closed\nby the other side"),
        (MemoryError("2 TiB"), "lead-baseline: not enough memory: 2 TiB"),
        (RuntimeError("can't allocate memory: 9 bytes\nat"), "lead-baseline: not enough memory: "),
        (RecursionError("maximum depth"), "lead-baseline: an input is nested too deeply"),
        (RuntimeError("Symlink loop from '/loop'"), "lead-baseline: Symlink loop from '/loop'"),
        (RuntimeError("a fault of ours"), None),
    ],
)
def test_what_users_can_mend_is_one_line(monkeypatch, error, told):
    def main(argv):
        raise error

    monkeypatch.setattr(lead_baseline, "main", main)
    with pytest.raises(RuntimeError if told is None else ConfigurationError) as raised:
        cli.main(["lead-baseline"])
    assert str(raised.value).startswith(told or str(error)) and "\n" not in (told or "")


def test_a_locale_without_the_letters_ends_no_command(tmp_path):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.tsv").write_text("größe\ttall\nkurz\tshort\n", encoding="utf-8")
    words = ["prepare-classification", "data", "--words", "--workers", "1"]
    words += ["--train", "train.tsv", "--valid", "valid.tsv"]
    environment = dict(os.environ, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-m", "fairseq_plugins", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"gr\\xf6\\xdfe" in done.stdout and b"is ready for training" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_ends_as_an_interrupt_does(monkeypatch, capsys, number):
    """SIGHUP comes from a terminal that is closed. Libraries make other errors of interrupts."""

    def main(argv):
        try:
            os.kill(os.getpid(), number)
            pytest.fail("it goes on")
        except KeyboardInterrupt:
            raise ConfigurationError("the model cannot be exported") from None

    monkeypatch.setattr(lead_baseline, "main", main)
    before = signal.signal(number, signal.SIG_DFL)  # these tests may run under nohup
    try:
        assert cli.main(["lead-baseline"]) == 128 + number
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert capsys.readouterr().err == "stopped\n"


def test_a_command_under_nohup_goes_on(monkeypatch):
    def main(argv):
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    monkeypatch.setattr(lead_baseline, "main", main)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert cli.main(["lead-baseline"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_help_comes_before_torch_and_fairseq_are_imported():
    """As Python does for -m: argv[0] is "-m" while the package is imported."""
    code = """
import contextlib, sys
sys.argv, sys.orig_argv = ["-m"], ["python", "-m", "fairseq_plugins"]
from fairseq_plugins.cli import commands, main
unwanted = {"torch", "fairseq", "sacrebleu", "scipy", "numpy", "tqdm", "unittest"}
for name in ("", "translate", *commands()):
    with contextlib.suppress(SystemExit):
        main([name, "-h"] if name else ["-h"])
    slow = sorted(unwanted & set(sys.modules))
    if name == "translate":  # which answers soonest
        unwanted -= {"numpy", "tqdm", "unittest"}
    if slow:
        sys.exit(f"{name} -h imports {slow}")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr


def test_a_program_of_another_package_registers_everything(tmp_path):
    """`python -m mt.go`, where the package mt imports this one, which says nothing."""
    (tmp_path / "mt").mkdir()
    (tmp_path / "mt" / "__init__.py").write_text("import fairseq_plugins\n")
    known = "'transformer_ftc' in fairseq.models.ARCH_MODEL_REGISTRY and gc.isenabled()"
    known += " and not {'sklearn', 'scipy'} & {*sys.modules}"  # which take seconds
    (tmp_path / "mt" / "go.py").write_text(f"import gc, sys, fairseq.models\nprint({known})\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "mt.go"],  # no warning of fairseq or torch
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"True\n", b"")


def test_an_interrupt_of_the_first_imports_is_a_line(tmp_path):
    """As python is still at the imports of the program, before a command has begun."""
    (tmp_path / "fairseq-plugins").write_text("import fairseq_plugins\nraise KeyboardInterrupt\n")
    words = [sys.executable, str(tmp_path / "fairseq-plugins")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "stopped\n")


@pytest.mark.parametrize(
    "words, unbuffered, status",
    # argparse, which prints the help of a command, ignores that its output cannot be written
    [("-h", "", 1), ("-h", "1", 1), ("train -h", "", 1), ("train -h", "1", 0)],
)
def test_a_reader_that_goes_away_is_no_error(monkeypatch, words, unbuffered, status):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "fairseq_plugins", *words.split()]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.stderr, done.returncode) == (b"", status)
