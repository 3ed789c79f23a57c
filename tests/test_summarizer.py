"""The command summarize with a tiny model on what prepare-summarization made."""

import json
import re
import shutil

import pytest
import torch

from fairseq_plugins.api import Summarizer
from fairseq_plugins.cli import prepare_summarization
from fairseq_plugins.cli import summarize as summarize_command
from fairseq_plugins.errors import ConfigurationError
from tests import tiny_runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weather in documents of up to 6 sentences; a summary names the first and the last."""
    folder = tmp_path_factory.mktemp("weather")
    sizes = {"train": 200, "valid": 10, "test": 12}
    tiny_runs.write_pairs(folder / "raw", ("source", "target"), tiny_runs.weather, sizes)
    prepare_summarization.main(
        [str(folder / "data"), "--vocab-size", "25", "--workers", "1"]
        + [word for s in ("train", "valid", "test") for word in ("--" + s, str(folder / "raw" / s))]
    )
    return folder


@pytest.fixture(scope="module")
def model(folder, run_train, train_args):
    """A folder with a checkpoint that has learnt something; it reads 29 subwords."""
    run_train(
        *(folder / "data", *train_args, "--save-dir", folder / "model", "--max-update", 80),
        *("--task", "summarization", "--max-source-positions", 30, "--truncate-source"),
        *("--max-target-positions", 60, "--lr", 0.01, "--no-epoch-checkpoints"),
    )
    return folder / "model"


@pytest.fixture
def summarize(model, converse):
    main, given = summarize_command.main, ("--model", model, "--cpu")
    return lambda text, *words: converse(main, text, *given, *words)


DOCUMENTS = ["Rain fell. Fog fell.", "Snow fell.", "Hail fell. Sun fell. Wind fell.", "Fog fell."]


def test_documents_keep_their_order_and_company_changes_nothing(summarize):
    out, _ = summarize("\n".join(DOCUMENTS) + "\n", "--buffer", 1)
    alone = out.splitlines(keepends=True)
    assert len(set(alone)) > 1, "the model says the same of everything: nothing is tested"
    assert all(line.count("\n") == 1 and "<q>" not in line for line in alone)
    expected = "".join(alone[::-1] + alone * 2)
    text = "\n".join(DOCUMENTS[::-1] + DOCUMENTS * 2) + "\n"
    for words in ([], ["--max-tokens", 30], ["--buffer", 3]):
        assert summarize(text, *words) == (expected, "")


def test_it_is_what_fairseq_generate_says(summarize, folder, model, run_generate):
    output = run_generate(
        *(folder / "data", "--path", model / "checkpoint_best.pt", "--task", "summarization"),
        *("--beam", 3, "--lenpen", 2, "--min-len", 12, "--max-len-b", 20, "--cpu"),
        *("--no-repeat-ngram-size", 2, "--remove-bpe", "sentencepiece"),
    ).output
    expected = dict(re.findall(r"^D-(\d+)\t\S+\t(.*)$", output, re.MULTILINE))
    documents = (folder / "raw/test.source").read_text(encoding="utf-8")
    out, err = summarize(
        *(documents, "--beam", 3, "--lenpen", 2, "--min-len", 12, "--max-len", 20),
        *("--no-repeat-ngram-size", 2, "--json"),
    )
    summaries = [json.loads(line)["summary"] for line in out.splitlines()]
    assert len(summaries) == 12 and any(len(sentences) == 2 for sentences in summaries)
    for number, sentences in enumerate(summaries):
        said = [sentence.strip() for sentence in expected[str(number)].split("<q>")]
        assert sentences == [sentence for sentence in said if sentence]
    assert re.search(r"\d+ documents over the model's limit of 29 subwords", err)


def test_empty_lines_stay_where_they_are(summarize):
    out, _ = summarize("\nRain fell.\n \t\n\u00a0\n\nFog fell.")
    assert [bool(line) for line in out.split("\n")] == [False, True, False, False, False, True, 0]
    assert summarize("") == ("", "")
    out, _ = summarize("\n", "--json")
    assert json.loads(out) == {
        "summary": [], "subwords": 0, "read": 0, "complete": True, "score": 0.0
    }  # fmt: skip


def test_what_is_not_read_is_counted(summarize, model):
    encode = Summarizer([model], cpu=True).processor.encode
    beginning, rest = "Rain fell. " * 20, "Snow fell. " * 30
    start = encode(beginning).split()
    assert len(start) > 29
    out, err = summarize("Fog fell.\n" + beginning + "\n\n" + beginning + rest + "\n", "--json")
    short, one, _, other = map(json.loads, out.splitlines())
    assert one["summary"] == other["summary"]  # what is cut off has no influence
    assert (one["subwords"], one["read"]) == (len(start), 29)
    whole = len(encode(beginning + rest).split())
    assert (other["subwords"], other["read"]) == (whole, 29)
    assert short["subwords"] == short["read"] == len(encode("Fog fell.").split())
    assert err == ("2 documents over the model's limit of 29 subwords got truncated: number 2, 4\n")


def test_no_more_is_read_than_was_prepared(folder, model, tmp_path):
    data = shutil.copytree(str(folder / "data"), str(tmp_path / "data"))
    path = tmp_path / "data" / "preparation.json"
    stored = json.loads(path.read_text())
    stored["settings"]["max_source"] = 9  # with the end
    path.write_text(json.dumps(stored))
    (found,) = Summarizer([model], data=data, cpu=True).summarize(["Rain fell. " * 20])
    assert found.read == 8


def test_a_summary_that_does_not_end_is_told(summarize):
    out, err = summarize("Rain fell.\n\nFog fell.\n", "--max-len", 2, "--json")
    assert [json.loads(line)["complete"] for line in out.splitlines()] == [False, True, False]
    assert "2 summaries reached 2 subwords" in err and "number 1, 3" in err


def test_several_summaries_with_their_scores(summarize, model):
    """The best first, as from Python; the best one's fields stand where they stand without."""
    several = Summarizer([model], cpu=True, beam=4, nbest=3)
    documents = [DOCUMENTS[0], "", DOCUMENTS[1]]
    expected = several.hypotheses(documents)
    assert [len(found) for found in expected] == [3, 1, 3]
    assert several.summarize(documents) == [best for best, *_ in expected]
    text = "".join(document + "\n" for document in documents)
    out, _ = summarize(text, "--json", "--nbest", 3, "--beam", 4)
    alone, _ = summarize(text, "--json", "--beam", 4)
    for line, best, found in zip(out.splitlines(), alone.splitlines(), expected, strict=True):
        told = json.loads(line)
        summaries = told.pop("summaries")
        assert told == summaries[0] == json.loads(best)
        assert [each["summary"] for each in summaries] == [each.summary for each in found]
        scores = [each["score"] for each in summaries]
        assert scores == sorted(scores, reverse=True) == [each.score for each in found]
    with pytest.raises(ConfigurationError, match="--nbest 2 is for --json: add it"):
        summarize(text, "--nbest", 2)
    with pytest.raises(ConfigurationError, match="--nbest 6 is above --beam 5"):
        summarize(text, "--json", "--nbest", 6)


@pytest.fixture(scope="module")
def copying(folder, run_train, train_args):
    """A folder with a checkpoint that copies."""
    run_train(
        *(folder / "data", *train_args, "--save-dir", folder / "copying", "--max-update", 2),
        *("--arch", "fastformer_encoder", "--copy-attention", "--task", "summarization"),
        *("--max-source-positions", 30, "--max-target-positions", 60, "--truncate-source"),
    )
    return folder / "copying"


def test_json_tells_what_was_copied(copying, summarize):
    out, _ = summarize("Rain fell. Fog fell.\n\n", "--model", copying, "--json")
    found, empty = map(json.loads, out.splitlines())
    pieces = [piece for piece, _ in found["copied"]]
    assert (
        "".join(pieces).replace("\u2581", " ").split("<q>")[0].strip()
        == (found["summary"] or [""])[0]
    )
    assert all(at is None or 0 <= at <= found["subwords"] for _, at in found["copied"])
    assert empty["copied"] == []
    assert "copied" not in json.loads(summarize("Rain fell.\n", "--json")[0])


def test_copied_words_that_the_dictionary_lacks_have_their_characters(copying, summarize, tmp_path):
    state = torch.load(copying / "checkpoint_best.pt", weights_only=False)
    state["model"]["decoder.copying.gate.bias"].fill_(-40.0)  # generates nothing
    torch.save(state, tmp_path / "copies.pt")
    document = "北京f北京l北京 Łódź."
    out, _ = summarize(document + "\n", "--model", tmp_path / "copies.pt", "--json")
    copied = json.loads(out)["copied"]
    pieces = Summarizer([copying], cpu=True).processor.encode(document).split()
    assert all(piece == pieces[at] for piece, at in copied)
    assert "北京" in {piece for piece, _ in copied} and "unk" not in out
