"""Sentences of a document as its summary: the first, random ones, the best."""

import io
import random
import tarfile

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import lead_baseline
from fairseq_plugins.lab.lead import TextRank, draw, lead, oracle, read_archives
from fairseq_plugins.scoring.rouge import score_documents

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


@pytest.mark.parametrize("stemmer", [False, True])
def test_no_sentence_is_better_than_the_oracle(stemmer):
    document = "The hill falls. A falling hill and the rain. The rain fell on one hill. It falls."
    for summary in ("One hill fell", "Falling rain on hills.", "It rains and falls"):
        best = oracle(document, summary, 1, stemmer)
        others = [sentence.strip() + "." for sentence in document.split(".") if sentence]
        scores = score_documents([summary] * 5, [best, *others], stemmer)[:, 0, 0]
        assert scores[0] == scores[1:].max() > 0


def test_textrank_takes_the_sentence_that_most_others_share_words_with():
    pytest.importorskip("sumy")
    document = "Rain fell. Wind moved snow over hills. Snow covered hills. Wind moved snow."
    rank = TextRank()
    assert rank(document, 1) == "Wind moved snow over hills."
    assert rank("Nobody came. " + document, 1) == "Wind moved snow over hills."
    assert rank(document, 9).count("<q>") == 3 and rank("", 2) == ""


def test_the_command_has_a_row_for_each(tmp_path, capsys):
    pytest.importorskip("sumy")
    (tmp_path / "source").write_text((DOCUMENT + "\n") * 2)
    (tmp_path / "target").write_text("The wind rose in the north.\n" * 2)
    words = [str(tmp_path / side) for side in ("source", "target")]
    found = []
    for more in ([], ["--all"]):
        lead_baseline.main([*words, "--sentences", "2", "--workers", "1", *more])
        lines = capsys.readouterr().out.splitlines()
        found.append({line.split()[0]: line for line in lines if " documents: " in line})
    assert list(found[0]) == ["Lead-2"]
    assert list(found[1]) == ["Lead-1", "Lead-2", "Random-2", "TextRank-2", "Oracle-2"]
    assert found[1]["Lead-2"] == found[0]["Lead-2"]
    assert "F1 = 100.00/" in found[1]["Oracle-2"] and "F1 = 100.00/" not in found[1]["Lead-2"]


def test_stories_are_read_once_and_none_is_missing(tmp_path):
    archive, ids = tmp_path / "stories.tgz", tmp_path / "ids"
    with tarfile.open(archive, "w:gz") as file:
        for name in "abc":
            content = f"Rain fell on {name}.\n\n@highlight\n\nRain fell".encode()
            member = tarfile.TarInfo(f"stories/{name}.story")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    assert len(read_archives([archive, archive], None)[0]) == 3
    ids.write_text("c\na\n")
    assert read_archives([archive], ids)[0] == ["Rain fell on a.", "Rain fell on c."]
    ids.write_text("c\nx\ny\n")
    with pytest.raises(ConfigurationError, match="2 of its stories are not in the archives.* x:"):
        read_archives([archive], ids)
