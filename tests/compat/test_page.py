"""The first example of compat's page, as it stands there."""

import re
import sys

from tests.conftest import ROOT

PAGE = (ROOT / "fairseq_plugins" / "compat" / "README.md").read_text(encoding="utf-8")


def test_the_example_trains_and_translates_every_sentence(toy_data, run_process, tmp_path):
    example = re.search(r"(?:\n    .*)+", PAGE).group()
    assert "fairseq-train" in example and "fairseq-generate" in example
    commands = example.replace("DATA", str(toy_data.bin))
    commands = re.sub(r"fairseq-(train|generate)", sys.executable + r" -m fairseq_cli.\1", commands)
    commands = commands.replace("$(python ", "$({} ".format(sys.executable))
    (tmp_path / "example.sh").write_text("set -e" + commands + "\n")
    done = run_process(["bash", tmp_path / "example.sh"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert sorted(int(n) for n in re.findall(r"^H-(\d+)", done.stdout, re.MULTILINE)) == list(
        range(13)
    )


def test_the_page_names_every_file_and_the_links_lead_somewhere():
    folder = ROOT / "fairseq_plugins" / "compat"
    for path in folder.glob("*.py"):
        assert path.name in PAGE
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (folder / link).exists()
