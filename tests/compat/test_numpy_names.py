"""Options of fairseq that need names which numpy 1.24 and 2 dropped."""

import ast
from pathlib import Path

import fairseq
import numpy as np
import pytest

from fairseq_plugins import compat
from fairseq_plugins.compat.numpy_names import MODULES

compat.apply()


def test_every_module_that_needs_an_old_name_has_it():
    """fairseq.data.audio.feature_transforms.specaugment uses `interpolation` of cv2."""
    root = Path(fairseq.__file__).parent.parent
    repaired = {module.__name__: module for module in MODULES}
    needed = set()
    for path in root.glob("fairseq/**/*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        source = path.read_text(encoding="utf-8")
        if "examples" in module or "np." not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "np":
                if not hasattr(np, node.attr):
                    needed.add((module, node.attr))
    assert {module for module, _ in needed} <= set(repaired)
    assert all(hasattr(repaired[module].np, name) for module, name in needed)


def test_buckets_have_the_lengths_of_the_corpus():
    from fairseq.data.data_utils import get_buckets

    assert get_buckets(np.arange(1, 101), 4).tolist() == [25, 50, 75, 100]


def test_num_batch_buckets(toy_data, run_train, train_args, tmp_path):
    words = [toy_data.bin, *train_args, "--max-update", 2, "--no-save", "--save-dir", tmp_path]
    assert "bucketing source lengths: [" in run_train(*words, "--num-batch-buckets", 2).output


@pytest.mark.parametrize("mode", ["eos", "none"])
def test_sample_break_mode(mode, toy_data, run_train, tmp_path):
    for path in toy_data.bin.glob("*.src-tgt.src.*"):
        (tmp_path / path.name.replace(".src-tgt.src", "")).write_bytes(path.read_bytes())
    (tmp_path / "dict.txt").write_bytes((toy_data.bin / "dict.src.txt").read_bytes())
    output = run_train(
        tmp_path, "--task", "language_modeling", "--arch", "transformer_lm", "--decoder-layers", 1,
        "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 32, "--decoder-attention-heads", 2,
        "--sample-break-mode", mode, "--tokens-per-sample", 16, "--max-tokens", 200, "--max-update",
        2, "--optimizer", "adam", "--lr", 0.001, "--no-save", "--save-dir", tmp_path,
    ).output  # fmt: skip
    assert "done training" in output
