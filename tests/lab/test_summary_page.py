"""A page with documents, their references and summaries."""

import json

import pytest

from fairseq_plugins import cli
from fairseq_plugins.errors import ConfigurationError


def test_the_page_shows_each_document_beside_its_reference(tmp_path, capsys):
    names = [str(tmp_path / name) for name in ("documents", "references", "summaries")]
    found = {"summary": ["Rain & fog."], "subwords": 9, "read": 9, "complete": True}
    copied = {**found, "read": 4, "copied": [["\u2581Snow", 3], ["\u2581<fell>", None]]}
    found.update(score=-1.5, summaries=[dict(found)])  # of summarize --json --nbest
    texts = (
        "Rain <fell>. Fog fell.\nSun & snow.\n",
        "Rain first. <q> Fog last.\nSun, snow.\nNot read.\n",
        "".join(json.dumps(each) + "\n" for each in (found, copied)),
    )
    for name, text in zip(names, texts):
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    assert cli.main(["summary-page", *names]) == 0
    parts = [part.strip().split("\n\n") for part in capsys.readouterr().out.split("## ")[1:]]
    assert parts == [
        [
            "1",
            "**Document (9 subwords).** Rain &lt;fell&gt;. Fog fell.",
            "**Reference.** Rain first. Fog last.",
            "**Lead-1.** Rain &lt;fell&gt;.",
            "**Summary.** Rain &amp; fog.",
        ],
        [
            "2",
            "**Document (9 subwords, read to subword 4).** Sun &amp; snow.",
            "**Reference.** Sun, snow.",
            "**Lead-1.** Sun &amp; snow.",
            "**Summary.** <b>Snow</b> &lt;fell&gt;",
        ],
    ]
    with pytest.raises(ConfigurationError, match="documents has 2 lines.* one summary and one re"):
        cli.main(["summary-page", names[0], names[1], names[1]])
