"""What is read from the flags of a processor, with made-up ones, and what depends on them."""

import platform

import onnxruntime
import pytest

from fairseq_plugins.search.onnx_backend.folder import Export
from fairseq_plugins.system import cpu

ENTRY = "session.x64quantprecision"
WITH_VNNI = ["flags\t\t: fpu avx2 avx512f avx512_vnni", "flags\t\t: fpu avx2 avx_vnni"]
WITHOUT = ["flags\t\t: fpu avx2", "flags\t\t: fpu avx2 avx512f avx512bw", ""]


@pytest.fixture
def made_up(monkeypatch, tmp_path):
    """A function that writes such a line to /proc/cpuinfo; None: there is no such file."""

    def make(line, machine="x86_64"):
        monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(platform, "machine", lambda: machine)
        if line is not None:
            text = f"processor\t: 0\nmodel name\t: A vnni bf16\n{line}\n"
            (tmp_path / "cpuinfo").write_text(text)

    return make


@pytest.mark.parametrize(
    "line, expected",
    [
        ("flags\t\t: fpu avx2 avx512f avx512bw", False),  # torch takes this for bf16
        ("flags\t\t: fpu avx512f avx512_bf16", True),
        ("flags\t\t: fpu amx_bf16", True),
        ("Features\t: fp asimd bf16", True),  # of ARM
        ("Features\t: fp asimd", False),
        ("", False),
        (None, False),  # another system
    ],
)
def test_instructions_for_bf16_are_those_that_linux_lists(made_up, line, expected):
    made_up(line)
    assert cpu.has_bf16() == expected


@pytest.mark.parametrize("line", [*WITH_VNNI, *WITHOUT, None])
def test_8_bit_sums_overflow_on_x86_without_vnni(made_up, line):
    for machine in ("x86_64", "AMD64"):
        made_up(line, machine)
        assert cpu.overflows_in_8_bits() == (line not in WITH_VNNI)
    made_up("Features\t: fp asimd", "aarch64")
    assert not cpu.overflows_in_8_bits()


def test_the_processor_is_named(made_up):
    made_up("", "aarch64")
    assert cpu.name() == "A vnni bf16"
    (cpu.CPUINFO).unlink()
    assert cpu.name() == (platform.processor() or "aarch64")


@pytest.mark.parametrize("line", [WITH_VNNI[0], WITHOUT[0]])
def test_exported_models_take_slow_products_only_where_others_overflow(
    made_up, line, exported, monkeypatch
):
    entries = []

    class Options(onnxruntime.SessionOptions):
        def add_session_config_entry(self, key, value):
            entries.append((key, value))
            super().add_session_config_entry(key, value)

    monkeypatch.setattr(onnxruntime, "SessionOptions", Options)
    made_up(line)
    Export(exported.folder)
    assert ((ENTRY, "1") in entries) == (line in WITHOUT)
