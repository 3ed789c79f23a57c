"""Each item of fairseq_plugins/compat.py, through fairseq's own functions and commands."""

import argparse
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from collections import OrderedDict, defaultdict

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer

from fairseq_plugins import compat

compat.apply()

safe_loading = pytest.mark.skipif(
    not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"),
    reason="this torch unpickles anything: checkpoints are refused from torch 2.6 on",
)


def test_applying_twice_changes_nothing_and_prints_nothing(capsys):
    places = [
        (checkpoint_utils, "load_checkpoint_to_cpu"),
        (PathManager, "copy"),
        (data_utils, "batch_by_size"),
        (options, "parse_args_and_arch"),
        (distributed_utils, "call_main"),
        (distributed_utils, "all_gather_list"),
        (Trainer, "__init__"),
    ]
    before = [getattr(owner, name) for owner, name in places]
    assert all(hasattr(function, "mended_by") for function in before)
    compat.apply()
    assert [getattr(owner, name) for owner, name in places] == before
    assert capsys.readouterr() == ("", "")


# Checkpoints


class Call:
    """Pickles as a call of `function`, the way a malicious checkpoint does."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def planted(checkpoint, folder, call):
    """A copy of `checkpoint` that holds `call`."""
    state = torch.load(str(checkpoint), map_location="cpu")
    state["extra_state"]["planted"] = call
    path = folder / "planted.pt"
    torch.save(state, str(path))
    return path


def touch_with(how, path):
    if how == "os.system":
        return Call(os.system, "touch {}".format(path))
    if how == "subprocess":
        return Call(subprocess.check_call, ["touch", str(path)])
    return Call(eval, "open({!r}, 'w').close()".format(str(path)))


@safe_loading
@pytest.mark.parametrize("how", ["os.system", "subprocess", "eval"])
def test_planted_call_is_refused_and_not_run(
    how, tmp_path, tiny_checkpoint, toy_data, run_generate
):
    touched = tmp_path / "touched"
    path = planted(tiny_checkpoint, tmp_path, touch_with(how, touched))
    with pytest.raises(pickle.UnpicklingError) as error:
        run_generate(toy_data.bin, "--path", path)
    assert not touched.exists()
    message = str(error.value)
    assert "\n" not in message and str(path) in message and "may be malicious" in message
    assert {"os.system": "system", "subprocess": "check_call", "eval": "eval"}[how] in message
    # the same file does run its call where nothing stops it
    torch.load(str(path), map_location="cpu", weights_only=False)
    assert touched.exists()


@safe_loading
def test_training_does_not_resume_from_a_planted_call(
    tmp_path, tiny_checkpoint, toy_data, run_train, train_args
):
    touched = tmp_path / "touched"
    planted(tiny_checkpoint, tmp_path, touch_with("os.system", touched)).rename(
        tmp_path / "checkpoint_last.pt"
    )
    with pytest.raises(pickle.UnpicklingError, match="may be malicious"):
        run_train(toy_data.bin, *train_args, "--save-dir", tmp_path, "--max-update", 8)
    assert not touched.exists()


def numpy_values():
    return {
        "scalars": [np.float64(0.5), np.float32(0.5), np.int64(3), np.bool_(True)],
        "array": np.arange(6, dtype=np.int64).reshape(2, 3),
        "floats": np.linspace(0, 1, 5),
    }


def assert_same_numpy_values(values):
    expected = numpy_values()
    assert values["scalars"] == expected["scalars"]
    for name in ("array", "floats"):
        assert values[name].dtype == expected[name].dtype
        assert np.array_equal(values[name], expected[name])


def test_types_of_fairseq_checkpoints_are_read(tmp_path):
    state = {
        "args": argparse.Namespace(arch="transformer", lr=[0.1]),
        "model": OrderedDict(weight=torch.ones(2)),
        "optimizer_history": [{"lr_scheduler_state": {}, "num_updates": 3, "optimizer_name": ""}],
        "extra_state": {"train_iterator": {"epoch": 1}, "meters": numpy_values()},
        "last_optimizer_state": {"state": {0: {"step": 3}}, "cache": defaultdict(dict)},
    }
    torch.save(state, str(tmp_path / "checkpoint.pt"))
    with open(str(tmp_path / "checkpoint.pt"), "rb") as file:
        read = torch.load(file, map_location="cpu")
    assert read["args"].lr == [0.1]
    assert read["last_optimizer_state"] == state["last_optimizer_state"]
    assert_same_numpy_values(read["extra_state"]["meters"])


@pytest.mark.parametrize("module", ["numpy.core", "numpy._core"])
def test_numpy_values_written_by_numpy_1_and_2_are_read(module, tmp_path):
    if module == "numpy._core" and int(np.__version__.split(".")[0]) < 2:
        pytest.skip("numpy 1 has no numpy._core")
    written = io.BytesIO()
    torch.save(numpy_values(), written)
    renamed = tmp_path / "renamed.pt"
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(str(renamed), "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("data.pkl"):
                content, count = re.subn(
                    rb"numpy\.(_core|core)\.multiarray", module.encode() + b".multiarray", content
                )
                assert count > 0
            target.writestr(name, content)
    assert_same_numpy_values(torch.load(str(renamed), map_location="cpu"))


def test_what_rank_0_sends_to_the_others_on_resuming_is_read(tiny_checkpoint):
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tiny_checkpoint))
    tensors = []
    sent = io.BytesIO()
    torch.save(distributed_utils._split_tensors_from_obj(state, tensors), sent)
    sent.seek(0)
    received = distributed_utils._put_tensors_in_obj(torch.load(sent), tensors)
    assert len(tensors) > 0
    assert str(received["cfg"]) == str(state["cfg"])
    assert list(received["model"]) == list(state["model"])
    assert all(torch.equal(received["model"][k], v) for k, v in state["model"].items())


def test_fused_copies_of_0_12_2_are_dropped(tmp_path, tiny_checkpoint):
    state = torch.load(str(tiny_checkpoint), map_location="cpu")
    own = OrderedDict(checkpoint_utils.load_checkpoint_to_cpu(str(tiny_checkpoint))["model"])
    layer = "encoder.layers.0."
    projections = [own[layer + "self_attn.{}_proj.weight".format(name)] for name in "qkv"]
    state["model"][layer + "in_proj_weight"] = torch.cat(projections)
    state["model"][layer + "in_proj_bias"] = torch.zeros(len(state["model"]))
    for name in ("fc1", "fc2"):
        state["model"][layer + name + "_weight"] = own[layer + name + ".weight"]
        state["model"][layer + name + "_bias"] = own[layer + name + ".bias"]
    state["model"]["encoder.other.in_proj_weight"] = torch.ones(1)
    torch.save(state, str(tmp_path / "old.pt"))
    read = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "old.pt"))["model"]
    assert set(read) == set(own) | {"encoder.other.in_proj_weight"}


def test_interrupted_copy_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    source, target = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new" * 1000)
    target.write_bytes(b"old")

    def copy_half(src, dst, **kwargs):
        with open(dst, "wb") as file:
            file.write(open(src, "rb").read()[:1000])
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(shutil, "copyfile", copy_half)
        with pytest.raises(KeyboardInterrupt):
            PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"old"
    assert PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == source.read_bytes()
    assert sorted(os.listdir(str(tmp_path))) == ["checkpoint1.pt", "checkpoint_last.pt"]


# Batches


@pytest.mark.parametrize("limits", [(None, None), (40, None), (None, 5), (None, 16), (60, 12)])
@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("vector", [False, True])
def test_every_sentence_is_in_one_batch_within_the_limits(limits, multiple, vector):
    max_tokens, max_sentences = limits
    generator = np.random.RandomState(0)
    for size in range(1, 34):
        lengths = generator.randint(1, 13, size=size)
        indices = np.argsort(lengths, kind="mergesort").astype(np.int64)
        batches = data_utils.batch_by_size(
            indices,
            num_tokens_fn=lambda index: lengths[index],  # noqa: B023
            num_tokens_vec=lengths[indices].astype(np.int64) if vector else None,
            max_tokens=max_tokens,
            max_sentences=max_sentences,
            required_batch_size_multiple=multiple,
        )
        assert np.concatenate(batches).tolist() == indices.tolist()
        for batch in batches:
            assert 0 < len(batch) <= (max_sentences or size)
            assert len(batch) * max(lengths[batch]) <= (max_tokens or 13 * size)
        assert all(len(b) < multiple or len(b) % multiple == 0 for b in batches[:-1])


def test_batches_of_fixed_shapes_hold_every_sentence():
    lengths = np.arange(1, 34) % 12 + 1
    batches = data_utils.batch_by_size(
        np.argsort(lengths), lengths.__getitem__, fixed_shapes=[(8, 6), (4, 12)]
    )
    assert sorted(i for batch in batches for i in batch) == list(range(33))


def test_batches_that_are_complete_are_left_as_they_are():
    complete = [np.arange(3), np.arange(3, 5)]
    owner = argparse.Namespace(batch_by_size=lambda indices, **kwargs: complete)
    mended, data_utils.batch_by_size = data_utils.batch_by_size, owner.batch_by_size
    try:
        compat.keep_the_last_batch()
        assert data_utils.batch_by_size(iter(range(5))) is complete
    finally:
        data_utils.batch_by_size = mended


def test_no_sentence_at_all_is_a_clear_error():
    with pytest.raises(ValueError, match="no sentence to make a batch of.*--max-source-positions"):
        data_utils.batch_by_size([], len, max_tokens=10)


@pytest.fixture(scope="module")
def splits_of_every_size(tmp_path_factory, toy_data, run_preprocess):
    """Binarised data whose splits size_1_, size_2_, ..., size_33_ have so many sentences."""
    folder = tmp_path_factory.mktemp("sizes")
    prefixes = []
    for size in range(1, 34):
        for language in ("src", "tgt"):
            lines = (toy_data.raw / ("train." + language)).read_text().splitlines()[:size]
            path = folder / "{}.{}".format(size, language)
            path.write_text("\n".join(lines) + "\n")
        prefixes.append(str(folder / str(size)))
    run_preprocess(
        "--source-lang", "src", "--target-lang", "tgt", "--testpref", ",".join(prefixes),
        "--srcdict", toy_data.bin / "dict.src.txt", "--tgtdict", toy_data.bin / "dict.tgt.txt",
        "--destdir", folder / "bin", "--workers", 1,
    )  # fmt: skip
    # fairseq takes train, train1, train2, ... for one split, and so test, test1, ...
    for path in (folder / "bin").glob("test*"):
        number, rest = re.fullmatch(r"test(\d*)(\..*)", path.name).groups()
        path.rename(path.with_name("size_{}_{}".format(int(number or 0) + 1, rest)))
    return folder / "bin"


def split_of(size):
    return "size_{}_".format(size)


def test_training_and_validation_see_every_sentence(
    splits_of_every_size, tmp_path, monkeypatch, run_train, train_args
):
    seen = {"train": [], "valid": []}
    for step in seen:
        original = getattr(FairseqTask, step + "_step")

        def record(self, sample, *args, step=step, original=original, **kwargs):
            seen[step].extend(sample["id"].tolist())
            return original(self, sample, *args, **kwargs)

        monkeypatch.setattr(FairseqTask, step + "_step", record)
    for size in range(1, 34):
        other = size % 33 + 1  # fairseq would share one iterator between subsets of the same name
        seen["train"].clear()
        seen["valid"].clear()
        run_train(
            splits_of_every_size, *train_args, "--train-subset", split_of(size),
            "--valid-subset", split_of(other), "--max-tokens", 100, "--max-epoch", 1, "--no-save",
            "--save-dir", tmp_path,
        )  # fmt: skip
        assert sorted(seen["train"]) == list(range(size))
        assert sorted(seen["valid"]) == list(range(other))


def test_generation_translates_every_sentence(splits_of_every_size, tiny_checkpoint, run_generate):
    for size in range(1, 34):
        output = run_generate(
            splits_of_every_size, "--path", tiny_checkpoint, "--gen-subset", split_of(size),
            "--max-tokens", 100, "--beam", 1, "--max-len-b", 3, "--no-progress-bar",
        ).output  # fmt: skip
        translated = re.findall(r"^H-(\d+)\t", output, re.MULTILINE)
        assert sorted(map(int, translated)) == list(range(size))
        assert "Translated {} sentences".format(size) in output


# The command line


def parsed(monkeypatch, *words):
    words = ["data", "--arch", "transformer"] + list(words)
    monkeypatch.setattr(sys, "argv", ["fairseq-train"] + words)
    return options.parse_args_and_arch(options.get_training_parser())


def test_bf16_means_a_tpu_only_with_tpu(monkeypatch):
    assert parsed(monkeypatch, "--bf16").tpu is False
    assert parsed(monkeypatch, "--memory-efficient-bf16").tpu is False
    assert parsed(monkeypatch, "--bf16", "--tpu").tpu is True
    assert parsed(monkeypatch).bf16 is False


def test_cpu_starts_no_process_for_every_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert parsed(monkeypatch).distributed_world_size == 4
    assert parsed(monkeypatch, "--cpu").distributed_world_size == 1
    assert parsed(monkeypatch, "--cpu", "--distributed-world-size=3").distributed_world_size == 3


def test_validation_without_a_task(tiny_checkpoint, toy_data, run_validate):
    words = [toy_data.bin, "--path", tiny_checkpoint, "--max-tokens", 400, "--no-progress-bar"]

    def loss(*more):
        return re.search(r"\| loss ([\d.]+)", run_validate(*words, *more).output).group(1)

    assert loss() == loss("--task", "translation")


def test_fp16_without_a_gpu_is_a_clear_error(toy_data, tmp_path, run_train, train_args):
    with pytest.raises(ValueError, match="--fp16 needs a GPU: leave it out, or use --bf16"):
        run_train(toy_data.bin, *train_args, "--fp16", "--cpu", "--save-dir", tmp_path)


def test_amp_without_a_gpu_says_that_it_does_nothing(toy_data, tmp_path, run_train, train_args):
    words = [toy_data.bin, *train_args, "--cpu", "--max-update", 2, "--no-save"]
    plain = run_train(*words, "--save-dir", tmp_path).output
    amp = run_train(*words, "--save-dir", tmp_path, "--amp").output
    assert "--amp has no effect without a GPU" in amp
    assert "--amp" not in plain
    losses = [re.findall(r"train_inner .*? loss=([\d.]+)", text) for text in (plain, amp)]
    assert losses[0] == losses[1] and len(losses[0]) == 2


# Generation


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tokens_that_would_repeat_an_ngram_are_banned(size):
    generator = torch.Generator().manual_seed(size)
    vocabulary, hypotheses, longest = 7, 20, 16
    tokens = torch.full((hypotheses, longest), 1)  # padding, as in fairseq's buffer
    tokens[:, 0] = 2
    for step in range(longest - 2):
        scores = torch.randn(hypotheses, vocabulary, generator=generator)
        expected = scores.clone()
        for hypothesis in range(hypotheses):
            words = tokens[hypothesis, 1 : step + 1].tolist()
            seen = {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}
            for word in range(vocabulary):
                if tuple(words[len(words) - size + 1 :] + [word]) in seen:
                    expected[hypothesis, word] = float("-inf")
        block = NGramRepeatBlock(size, use_extension=False)
        actual = block(tokens, scores, hypotheses, 1, step)
        assert actual.tolist() == expected.tolist()
        tokens[:, step + 1] = torch.randint(3, vocabulary, (hypotheses,), generator=generator)


def test_no_repeat_ngram_size(tiny_checkpoint, toy_data, run_generate):
    """Single words, as the output does not show the start symbols between the words of a pair."""

    def repeated(*flags):
        output = run_generate(
            toy_data.bin, "--path", tiny_checkpoint, "--beam", 2, "--min-len", 9,
            "--max-len-a", 0, "--max-len-b", 12, *flags,
        ).output  # fmt: skip
        texts = re.findall(r"^H-\d+\t\S+\t(.*)$", output, re.MULTILINE)
        assert len(texts) == 13
        return sum(len(text.split()) - len(set(text.split())) for text in texts)

    assert repeated() > 0
    assert repeated("--no-repeat-ngram-size", 1) == 0


def test_unknown_words_are_copied_without_a_dictionary(tiny_checkpoint, toy_data, run_interactive):
    output = run_interactive(
        toy_data.bin, "--path", tiny_checkpoint, "--replace-unk", stdin="ba be\n"
    ).output
    assert re.search(r"^H-0\t", output, re.MULTILINE)


def test_process_groups_end_with_the_training(monkeypatch, tmp_path):
    """Left to the interpreter's end, gloo's threads sometimes abort it."""
    from torch import distributed as dist

    def join(cfg):
        store = "file://{}".format(tmp_path / "store")
        dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        return 0

    monkeypatch.setattr(distributed_utils, "distributed_init", join)
    monkeypatch.setattr(distributed_utils, "get_global_group", lambda: None)
    cfg = argparse.Namespace(
        distributed_training=argparse.Namespace(device_id=0, distributed_rank=0),
        common=argparse.Namespace(cpu=True, tpu=False),
    )
    during = []
    distributed_utils.distributed_main(0, lambda cfg: during.append(dist.is_initialized()), cfg, {})
    assert during == [True] and not dist.is_initialized()
