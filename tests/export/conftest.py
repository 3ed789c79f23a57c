"""Exports of tiny models."""

import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install '.[test]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install '.[test]'")

from tests.models.conftest import build, parse  # noqa: E402, F401


@pytest.fixture(scope="session")
def task(parse):  # noqa: F811
    return parse("--arch", "transformer").task


@pytest.fixture(scope="session")
def export_tiny(build, task):  # noqa: F811
    """export_tiny(folder, words..., arch=...) -> the model, in float32, and its `Export`."""
    from fairseq_plugins import export
    from fairseq_plugins.serving.folder import Export

    def run(folder, *words, arch="transformer_ftc", int8=False):
        model = build(*words, arch=arch).float().eval()
        folder.mkdir(parents=True)
        export.write_graphs(model, task, folder)
        if int8:
            export.quantize_graphs(folder)
        export.write_dictionaries(task, folder)
        export.write_config(model, task, folder, {"int8": int8}, "not stated")
        return model, Export(folder)

    return run
