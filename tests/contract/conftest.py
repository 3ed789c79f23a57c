"""The contract of parts of other packages: `pytest tests/contract --user-dir DIR`."""

import importlib.util
from pathlib import Path


def pytest_addoption(parser):
    text = "a folder with parts of your own; its references.py says what they compute"
    parser.addoption("--user-dir", type=Path, help=text)


def pytest_configure(config):
    """Import the parts of --user-dir and their references before the tests are collected."""
    folder = config.getoption("--user-dir", None)
    if folder is None:
        return
    import fairseq_plugins
    from fairseq_plugins.options.user_dirs import import_user_dirs
    from tests.contract import references

    fairseq_plugins.register()
    import_user_dirs(folder)
    spec = importlib.util.spec_from_file_location("own_references", folder / "references.py")
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    for name in ("MIXERS", "FEED_FORWARDS"):
        getattr(references, name).update(getattr(own, name, {}))
