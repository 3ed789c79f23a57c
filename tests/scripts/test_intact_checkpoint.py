"""A checkpoint_last.pt that a kill cut short is replaced by the newest whole checkpoint."""

import pytest
import torch

from scripts import intact_checkpoint


def save(folder, name, value):
    torch.save({"value": value}, folder / name)


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def load(path):
    return torch.load(path)["value"]


def test_a_whole_one_stays(tmp_path):
    save(tmp_path, "checkpoint_last.pt", 7)
    save(tmp_path, "checkpoint_1_900.pt", 9)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    assert intact_checkpoint.mend(tmp_path) is None
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before


def test_the_newest_whole_one_takes_the_place(tmp_path, capsys):
    for updates in (90, 1000, 200):
        save(tmp_path, f"checkpoint_1_{updates}.pt", updates)
    for name in ("checkpoint_last.pt", "checkpoint_2_3000.pt"):
        save(tmp_path, name, 3000)
        cut(tmp_path / name)
    save(tmp_path, "checkpoint_best.pt", 5000)  # it may be of any update
    assert intact_checkpoint.main([str(tmp_path)]) == 0
    assert load(tmp_path / "checkpoint_last.pt") == 1000
    assert "checkpoint_1_1000.pt" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 the beginning only"])
def test_no_other_one(tmp_path, content):
    (tmp_path / "checkpoint_last.pt").write_bytes(content)
    assert "anew" in intact_checkpoint.mend(tmp_path)
    assert not (tmp_path / "checkpoint_last.pt").exists()


def test_nothing_trained_yet(tmp_path):
    assert intact_checkpoint.mend(tmp_path) is None
    assert not list(tmp_path.iterdir())
