"""Checkpoints as fairseq published them: their options and names, with random weights, small.

The options of WMT'19 are those that its authors showed (facebookresearch/fairseq issue 2489), those
of M2M-100 what its README passes to fairseq-generate.
"""

import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_plugins import Translator
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError
from tests import tiny_runs

LINES = ["Der Hund schläft heute.", "Die Katze läuft nie!"]
SIZES = {"embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 2, "layers": 2}
OF_BOTH = {
    f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()
}
WMT19 = {
    "adam_betas": "(0.9, 0.98)", "adaptive_input": False, "adaptive_softmax_cutoff": None,
    "arch": "transformer_wmt_en_de_big", "attention_dropout": 0.1, "bucket_cap_mb": 25,
    "criterion": "label_smoothed_cross_entropy", "ddp_backend": "c10d", "decoder_input_dim": 16,
    "decoder_output_dim": 16, "decoder_normalize_before": False, "distributed_rank": 0,
    "distributed_init_method": "tcp://localhost:17406", "dropout": 0.2, "extra_data": "",
    "fp16": True, "label_smoothing": 0.1, "left_pad_source": "True", "left_pad_target": "False",
    "lr": [0.0007], "max_source_positions": 64, "max_target_positions": 64, "max_tokens": 3584,
    "raw_text": False, "relu_dropout": 0.0, "share_all_embeddings": True, "task": "translation",
    "source_lang": "de", "target_lang": "en", "upsample_primary": 16, "user_dir": None,
    "data": ["/private/old/ende", "/private/nc"], **OF_BOTH, "encoder_ffn_embed_dim": 64,
}  # fmt: skip


def of_2019(model):
    """The names that fairseq's checkpoints had in 2019, in half precision."""
    found = {}
    for name, value in model.items():
        if "output_projection" in name:
            continue  # it was the embedding
        if ".self_attn.q_proj." in name:
            parts = [model[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            found[name.replace("q_proj.", "in_proj_")] = torch.cat(parts).half()
        elif ".self_attn.k_proj." not in name and ".self_attn.v_proj." not in name:
            found[name] = value.half()
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A prepared folder, and one with the files of a published model."""
    pytest.importorskip("onnxscript", reason="needs onnxscript: pip install '.[test]'")
    folder = tmp_path_factory.mktemp("published")
    with tiny_runs.within(folder):
        tiny_runs.write_pairs(folder / "raw", ("de", "en"), tiny_runs.sentence, tiny_runs.SIZES)
        words = "--source-lang de --target-lang en --joined-dictionary --subword bpe".split()
        tiny_runs.call("prepare-translation", *tiny_runs.PREPARE, 40, *words)
    model = folder / "wmt19"
    model.mkdir()
    for name in ("dict.de.txt", "dict.en.txt"):
        shutil.copy(folder / "data" / name, model)
    lines = (folder / "data/bpe.codes").read_text("utf-8").splitlines()[1:]
    codes = "".join(f"{line} {100 - number}\n" for number, line in enumerate(lines))
    (model / "bpecodes").write_text(codes, "utf-8")
    return folder


def checkpoint(path, options, data, names=lambda model: model):
    of_model = WMT19 if options["task"] == M2M_100["task"] else options  # only its options count
    given = Namespace(**{**of_model, "data": str(data)})
    torch.manual_seed(3)
    cfg = convert_namespace_to_omegaconf(given)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    state = {
        "args": Namespace(**options), "model": names(model.state_dict()),
        "optimizer_history": [{"criterion_name": "LabelSmoothedCrossEntropyCriterion",
                               "optimizer_name": "FP16Optimizer", "lr_scheduler_state": {},
                               "num_updates": 5}],
        "extra_state": {"epoch": 1, "train_iterator": {"epoch": 1}, "val_loss": 2.0},
        "last_optimizer_state": None,
    }  # fmt: skip
    torch.save(state, path)
    return model


@pytest.mark.parametrize("exported", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_wmt19_translates_and_is_exported(exported, folder, tmp_path, monkeypatch):
    model = Path(shutil.copytree(folder / "wmt19", tmp_path / "wmt19"))
    data = ["--bpe-codes", model / "bpecodes", "--tokenizer", "moses"]
    tiny_runs.call("adopt", model, *data, "--source-lang", "de", "--target-lang", "en")
    checkpoint(model / "model1.pt", WMT19, model, of_2019)
    plain = Translator(model / "model1.pt", model, cpu=True, beam=2)
    # fastBPE's merges split as those of the preparation
    expected = Translator(model / "model1.pt", folder / "data", cpu=True, beam=2)
    assert plain.processor.encode(LINES[0]) == expected.processor.encode(LINES[0])
    found = plain.translate(LINES)
    assert len(found) == 2
    assert Translator(model / "model1.pt", model, cpu=True, int8=True).translate(LINES)
    if not exported:
        return
    monkeypatch.chdir(tmp_path)
    tiny_runs.call("export", model / "model1.pt", "--data", model, "--out", "export")
    assert Translator("export", beam=2).translate(LINES) == found


M2M_100 = {
    **WMT19, "task": "translation_multi_simple_epoch", "langs": ["de", "en", "fr"],
    "lang_pairs": ["de-en", "en-de"], "lang_tok_style": "multilingual", "encoder_langtok": "src",
    "decoder_langtok": True, "langtoks_specs": ["main"],
}  # fmt: skip
MBART = {
    **WMT19, "task": "translation_from_pretrained_bart", "arch": "mbart_base",
    "langs": "de_DE,en_XX", "prepend_bos": False, "source_lang": "de", "target_lang": "en",
    "layernorm_embedding": True, "encoder_learned_pos": True, "decoder_learned_pos": True,
}  # fmt: skip


@pytest.mark.parametrize("options", [M2M_100, MBART], ids=["m2m_100", "mbart"])
def test_language_tokens_are_rejected_in_one_line(folder, options, monkeypatch):
    monkeypatch.chdir(folder)
    checkpoint(folder / "other.pt", options, folder / "data")
    for use in (
        lambda: Translator(folder / "other.pt", folder / "data", cpu=True),
        lambda: tiny_runs.call("export", "other.pt", "--data", "data", "--out", "none"),
    ):
        with pytest.raises(ConfigurationError, match="languages are not supported") as error:
            use()
        assert "\n" not in str(error.value)


@pytest.fixture
def data_bin(folder, tmp_path):
    """What fairseq-preprocess would have made, with the raw text beside it."""
    shutil.copytree(folder / "data", tmp_path / "bin")
    shutil.move(tmp_path / "bin/bpe.codes", tmp_path / "codes")
    shutil.move(tmp_path / "bin/text/raw", tmp_path / "raw")
    (tmp_path / "bin/preparation.json").unlink()
    return tmp_path / "bin"


def test_an_adopted_folder_is_as_a_prepared_one(folder, data_bin):
    words = ["--bpe-codes", data_bin.parent / "codes", "--tokenizer", "moses"]
    tiny_runs.call("adopt", data_bin, *words, "--text", data_bin.parent / "raw")
    ours, prepared = Prepared(data_bin), Prepared(folder / "data")
    assert ours.processing == prepared.processing and ours.words == prepared.words
    assert ours.length_limit("de", "en") == prepared.length_limit("de", "en")
    for path in (folder / "data/text/raw").iterdir():
        assert (data_bin / "text/raw" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "words,told",
    [
        ("--bpe-codes none", "none is missing"),
        ("--bpe-codes RAW/test.de", "holds no merges"),
        ("--sentencepiece CODES", "not a model of SentencePiece"),
        ("--bpe-codes CODES --text BIN", "has no text of"),
        ("--bpe-codes CODES --text SHORT", "has 1 line, but .* has 8 sentences"),
        ("--bpe-codes CODES --source-lang de", "--source-lang de needs --target-lang: add it"),
    ],
)
def test_what_cannot_be_adopted(data_bin, words, told):
    (data_bin.parent / "short").mkdir()
    for language in ("de", "en"):
        (data_bin.parent / f"short/test.{language}").write_text("one\n", "utf-8")
    places = {"BIN": "bin", "RAW": "raw", "CODES": "codes", "SHORT": "short"}
    for name, place in places.items():
        words = words.replace(name, str(data_bin.parent / place))
    with pytest.raises(ConfigurationError, match=told):
        tiny_runs.call("adopt", data_bin, *words.split(" "))
    assert not (data_bin / "preparation.json").exists()
    with pytest.raises(ConfigurationError, match="with the command adopt"):
        Prepared(data_bin).processing  # noqa: B018
