"""Sentences of a document as its summary: the first, random ones, the best."""

import random

from fairseq_plugins.commands import lead_baseline
from fairseq_plugins.evaluation.lead import draw, lead, oracle

DOCUMENT = "Rain fell. Snow lay on the hills. Nobody came. The wind rose in the north."


def test_lead():
    assert lead(DOCUMENT, 2) == "Rain fell. <q> Snow lay on the hills."
    assert lead(DOCUMENT, 9).count("<q>") == 3 and lead("", 3) == ""


def test_random_sentences_keep_their_order():
    generator = random.Random(1)
    drawn = {draw(DOCUMENT, 2, generator) for _ in range(60)}
    assert len(drawn) == 6
    for summary in drawn:
        first, second = summary.split(" <q> ")
        assert DOCUMENT.index(first) < DOCUMENT.index(second)
    assert draw(DOCUMENT, 9, generator) == lead(DOCUMENT, 9)


def test_the_oracle_takes_what_matches_and_no_more():
    summary = "Wind rose in the north. <q> Rain fell."
    expected = "Rain fell. <q> The wind rose in the north."
    assert oracle(DOCUMENT, summary, 3) == oracle(DOCUMENT, summary, 2) == expected
    assert oracle(DOCUMENT, summary, 1) == "The wind rose in the north."
    assert oracle(DOCUMENT, "Something else.", 2) == oracle("", summary, 2) == ""


def test_the_command_has_a_row_for_each(tmp_path, capsys):
    (tmp_path / "source").write_text((DOCUMENT + "\n") * 2)
    (tmp_path / "target").write_text("The wind rose in the north.\n" * 2)
    words = [str(tmp_path / side) for side in ("source", "target")]
    found = []
    for more in ([], ["--all"]):
        lead_baseline.main([*words, "--sentences", "2", "--workers", "1", *more])
        lines = capsys.readouterr().out.splitlines()
        found.append({line.split()[0]: line for line in lines if " documents: " in line})
    assert list(found[0]) == ["Lead-2"]
    assert list(found[1]) == ["Lead-1", "Lead-2", "Random-2", "Oracle-2"]
    assert found[1]["Lead-2"] == found[0]["Lead-2"]
    assert "F1 = 100.00/" in found[1]["Oracle-2"] and "F1 = 100.00/" not in found[1]["Lead-2"]
