"""The first example of compat's page, as it stands there."""

import re
import shlex

from fairseq_plugins.compat.unpickling import BUILDERS
from tests.conftest import ROOT, USER_DIR, run_cli

PAGE = (ROOT / "fairseq_plugins" / "compat" / "README.md").read_text(encoding="utf-8")


def test_the_example_trains_and_translates_every_sentence(toy_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = re.search(r"(?:\n    .*)+", PAGE).group().replace("\\\n", " ")
    values = {"DATA": toy_data.bin, "$PLUGINS": USER_DIR}
    outputs = {}
    for line in example.splitlines():
        words = [values.get(word, word) for word in shlex.split(line)]
        if words and words[0].startswith("fairseq-"):
            outputs[words[0]] = run_cli(words[0][len("fairseq-") :], *words[1:]).output
    assert list(outputs) == ["fairseq-train", "fairseq-generate"]
    translated = re.findall(r"^H-(\d+)", outputs["fairseq-generate"], re.MULTILINE)
    assert sorted(map(int, translated)) == list(range(toy_data.sizes["test"]))


def test_the_page_lists_the_names_that_a_checkpoint_may_call():
    table = PAGE.split("| name in the file |")[1].split("\n\n")[0]
    *called, _types = [line.split(" | ")[0] for line in table.splitlines()[2:]]
    assert sorted(re.findall(r"`([^`]+)`", " ".join(called))) == sorted(BUILDERS)
