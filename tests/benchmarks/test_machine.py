"""The conditions that stand beside a figure."""

from fairseq_plugins.benchmarks import machine


def test_without_a_checkout_the_files_themselves_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    code = tmp_path / "fairseq_plugins" / "a.py"
    code.parent.mkdir()
    code.write_text("x = 1\n")
    before = machine.commit()
    assert before.startswith("unknown, files ") and machine.commit() == before
    code.write_text("x = 2\n")
    assert machine.commit() != before
