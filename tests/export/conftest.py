"""Exports of tiny models."""

import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install '.[test]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install '.[test]'")


@pytest.fixture(scope="session")
def task(parse):
    return parse("--arch", "transformer").task


@pytest.fixture(scope="session")
def joined_task(parse_joined):
    return parse_joined("--arch", "transformer").task


@pytest.fixture(scope="session")
def export_tiny(build, task):
    """export_tiny(folder, words..., arch=...) -> the model, in float32, and its `Export`."""
    return exporter_of(build, task)


@pytest.fixture(scope="session")
def export_joined(build_joined, joined_task):
    """As `export_tiny`, with one dictionary for both sides."""
    return exporter_of(build_joined, joined_task)


def exporter_of(build, task):
    from fairseq_plugins.export import folder as export_folder
    from fairseq_plugins.search.onnx_backend.folder import Export

    def run(folder, *words, arch="transformer_ftc", int8=False):
        model = build(*words, arch=arch).float().eval()
        folder.mkdir(parents=True)
        export_folder.write_graphs(model, folder)
        if int8:
            export_folder.quantize_graphs(folder)
        export_folder.write_dictionaries(task, folder)
        export_folder.write_config(model, task, folder, {"int8": int8}, "not stated")
        return model, Export(folder)

    return run
