"""Training by recipe: the command for a machine, locking, resuming, and refusals."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from fairseq.data import indexed_dataset

from fairseq_plugins.commands import train as command
from fairseq_plugins.compat import bf16, stopping
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.training import batches, jobs, launch, settings
from fairseq_plugins.training.batches import Batch, share
from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "translation"
TINY = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--decoder-embed-dim 16 --decoder-ffn-embed-dim 16 --decoder-attention-heads 2 "
    "--encoder-blocks 1,1 --decoder-layers 1 --dropout 0 --log-interval 1 "
    "--no-epoch-checkpoints --num-workers 0"
).split()
BY_LOSS = "task: {eval_bleu: false}\ncheckpoint: {best_checkpoint_metric: loss}\n"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def plan(data, *words, recipe="transformer_ftc"):
    return launch.plan(command.read_request([recipe, str(data), *map(str, words)]))


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    """Without --save-dir a training is in runs/, where the checkout may have one."""
    monkeypatch.chdir(tmp_path)


def value(words, option):
    """The last value of an option on a command line, which is the one that counts."""
    return [after for word, after in zip(words, words[1:]) if word == option][-1]


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked, exported, expected", [(3, "2", 3), (None, "2", 2), (3, None, 3)])
def test_threads_are_those_asked_for(toy_data, monkeypatch, asked, exported, expected):
    monkeypatch.delenv("OMP_NUM_THREADS")
    if exported:
        monkeypatch.setenv("OMP_NUM_THREADS", exported)
    words = ["--threads", str(asked)] if asked else []
    request = command.read_request(["transformer_ftc", str(toy_data.bin), "--cpu", *words])
    assert launch.plan(request).threads == expected


def test_processes_share_the_cores(monkeypatch):
    monkeypatch.setattr(launch.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")  # of nested regions, too: not one number
    assert [launch.available_threads(n) for n in (1, 3, 9)] == [8, 2, 1]


def test_later_options_win(toy_data, tmp_path):
    (tmp_path / "a.args").write_text("# a comment\n--lr 1e-3 --dropout 0.1 # here too\n")
    (tmp_path / "b.yaml").write_text("criterion: {label_smoothing: 0}\n")
    files = ["--settings", tmp_path / "a.args", "--settings", tmp_path / "b.yaml"]
    found = plan(toy_data.bin, *files, "--", "--label-smoothing", 0.2).settings
    expected = {"lr": [1e-3], "dropout": 0.1, "label_smoothing": 0.2, "warmup_updates": 4000}
    assert {name: found[name] for name in expected} == expected


def test_bleu_joins_the_subwords_that_the_data_has(toy_data, tmp_path):
    data = Path(shutil.copytree(str(toy_data.bin), str(tmp_path / "data")))
    assert plan(data).given.eval_bleu_remove_bpe == "@@ "
    (data / "preparation.json").write_text('{"settings": {"subword": "sentencepiece"}}')
    assert plan(data).given.eval_bleu_remove_bpe == "sentencepiece"
    chosen = plan(data, "--", "--eval-bleu-remove-bpe", "letter").given
    assert chosen.eval_bleu_remove_bpe == "letter"
    (tmp_path / "loss.yaml").write_text(BY_LOSS)
    asked = plan(data, "--settings", tmp_path / "loss.yaml", "--", "--eval-bleu").given
    assert asked.eval_bleu and asked.eval_bleu_remove_bpe == "sentencepiece"


@pytest.fixture(scope="module")
def documents(tmp_path_factory, run_preprocess):
    """Documents of up to 51 tokens with summaries of 4, one dictionary for both."""
    folder = tmp_path_factory.mktemp("documents")
    for split, lengths in (("train", [20, 30, 50, 12] * 5), ("valid", [9, 14])):
        for side, limit in (("source", 50), ("target", 3)):
            lines = [" ".join("abcdefg"[i % 7] for i in range(min(n, limit))) for n in lengths]
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    run_preprocess(
        *["--source-lang", "source", "--target-lang", "target", "--joined-dictionary"],
        *["--trainpref", folder / "train", "--validpref", folder / "valid"],
        *["--destdir", folder / "data", "--workers", 1],
    )
    return folder / "data"


def test_truncated_documents_may_be_longer_than_a_batch(documents):
    """With --truncate-source, the check ignores truncated tokens, like training."""
    words = ["--", "--max-tokens", 40, "--max-source-positions"]
    todo = plan(documents, *words, 40, recipe="fastformer_cnn_dm")
    assert value(todo.command, "--max-tokens") == "40" and todo.given.truncate_source
    with pytest.raises(ConfigurationError, match="--max-tokens 41 or more is needed"):
        plan(documents, *words, 41, recipe="fastformer_cnn_dm")
    with pytest.raises(ConfigurationError, match="longest sentence of train has 51 tokens"):
        plan(documents, *words, 2048, recipe="fastformer_cnn_dm")


# --------------------------------------------------------------------------------------------------
# The batch


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 6, 8, 12])
@pytest.mark.parametrize("update_freq", [1, 2, 3, 8])
@pytest.mark.parametrize("limit", [None, 1000])
def test_the_total_batch_stays(processes, update_freq, limit):
    whole = Batch(6144, 96, update_freq)
    batch = share(whole, processes, limit)
    for one, all_of_it in zip(batch[:2], whole[:2]):
        assert one * processes * batch.update_freq == all_of_it * update_freq
    assert batch.max_tokens <= min(whole.max_tokens, limit or whole.max_tokens)
    if update_freq % processes == 0 and limit is None:
        # what one process adds up is shared out before batches get smaller
        assert batch == (*whole[:2], update_freq // processes)


def test_the_limit_gives_the_largest_batches_that_fit():
    assert share(Batch(4096, None, 1), 1, 2048) == Batch(2048, None, 2)
    assert share(Batch(4096, None, 1), 2, 2048) == Batch(2048, None, 1)
    assert share(Batch(4096, None, 4), 2, 4096) == Batch(4096, None, 2)


@pytest.mark.parametrize(
    "whole, processes, limit, message",
    [
        (Batch(4096, None, 1), 3, None, r"3 processes .*--max-tokens 4096 .*start 1, 2 or 4 "),
        (Batch(4096, 33, 1), 2, None, "--max-tokens 4096 and --batch-size 33 .*start 1 "),
        (Batch(4096, None, 1), 1, 0, "--tokens-per-process 0 must be above 0"),
        (Batch(None, 32, 1), 1, 100, "--tokens-per-process 100 must .*needs --max-tokens in"),
        (Batch(64, 3, 1), 1, 10, "1 process.* and --tokens-per-process 10 cannot share"),
    ],
)
def test_a_batch_that_cannot_be_shared(whole, processes, limit, message):
    with pytest.raises(ConfigurationError, match=message):
        share(whole, processes, limit)


def test_sentences_must_fit_into_the_share_of_a_process(toy_data):
    of_data = (None, None)
    longest = batches.longest_sentences(toy_data.bin, of_data, ["train", "valid", "nothing"])
    lines = (toy_data.raw / "train.src").read_text().splitlines()
    assert longest["train"] == max(len(line.split()) for line in lines) + 1  # end of sentence
    assert set(longest) == {"train", "valid"}
    count = partial(batches.count_too_long, toy_data.bin, of_data, "train")
    lengths = [len(line.split()) + 1 for line in lines]
    assert count(5, 99, None) == sum(length > 5 for length in lengths) > 0
    assert count(5, 99, 5) == count(99, 99, None) == 0
    assert count(5, 5, None) >= count(99, 5, None) > 0
    told = plan(toy_data.bin, "--", "--max-source-positions", 5).summary[-1]
    assert told.startswith(f"{count(5, 1024, None)} pairs are longer than --max-source-positions 5")
    with pytest.raises(ConfigurationError, match="longest sentence of train has 13 .*--tokens-per"):
        plan(toy_data.bin, "--tokens-per-process", 8)
    with pytest.raises(ConfigurationError, match="--max-tokens 13 or more is needed"):
        plan(toy_data.bin, "--", "--max-tokens", 12)


def write_binary(prefix, lengths):
    builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=100)
    for length in lengths:
        builder.add_item(torch.full((length,), 5, dtype=torch.int32))
    builder.finalize(f"{prefix}.idx")


def test_another_language_pair_of_the_folder_does_not_count(toy_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(toy_data.bin, data)
    write_binary(data / "train.xx-tgt.xx", [9, 8, 2])
    write_binary(data / "train.xx-tgt.tgt", [3, 9, 7])
    alone = batches.count_too_long(toy_data.bin, (None, None), "train", 5, 99, None)
    count = partial(batches.count_too_long, data)
    assert count(("src", "tgt"), "train", 5, 99, None) == alone > 3
    assert count(("xx", "tgt"), "train", 8, 99, None) == 1
    assert count(("tgt", "xx"), "train", 6, 99, None) == 2  # the reverse reads tgt
    assert count(("tgt", "xx"), "train", 99, 7, None) == 2
    for language in ("xx", "tgt"):  # a folder with both orders: fairseq reads the one that is asked
        write_binary(data / f"train.tgt-xx.{language}", [9])
    assert count(("tgt", "xx"), "train", 6, 99, None) == 1
    assert count(("xx", "tgt"), "train", 8, 99, None) == 1
    words = ["--source-lang", "src", "--target-lang", "tgt", "--max-source-positions", 5]
    assert plan(data, "--", *words).summary[-1].startswith(f"{alone} pairs are longer")


def test_sentences_of_valid_must_fit_into_its_own_batch(documents):
    words = ["--max-source-positions", 60, "--max-tokens", 51, "--max-tokens-valid"]
    plan(documents, "--", *words, 15, recipe="fastformer_cnn_dm")
    with pytest.raises(ConfigurationError, match="of valid has 15 .*--max-tokens-valid 15 or more"):
        plan(documents, "--", *words, 14, recipe="fastformer_cnn_dm")
    plan(documents, "--", *words, 14, "--disable-validation", recipe="fastformer_cnn_dm")
    # this leaves out what is longer than the model reads, not what is longer than a batch
    skip = ["--skip-invalid-size-inputs-valid-test", "--max-target-positions", 12]
    with pytest.raises(ConfigurationError, match="--max-tokens-valid 15 or more"):
        plan(documents, "--", *words, 14, *skip, recipe="fastformer_cnn_dm")
    words[1] = 12  # this recipe does not cut sources
    with pytest.raises(ConfigurationError, match="--max-tokens-valid 15 or more"):
        plan(documents, "--", *words, 14)
    plan(documents, "--", *words, 14, *skip)


def test_valid_may_have_longer_sentences_than_a_batch_of_training(documents, tmp_path):
    swapped = Path(shutil.copytree(str(documents), str(tmp_path / "swapped")))
    for path in documents.glob("train.*"):
        shutil.copy(str(path), str(swapped / path.name.replace("train", "valid")))
        other = documents / path.name.replace("train", "valid")
        shutil.copy(str(other), str(swapped / path.name))
    words = ["--", "--max-source-positions", 60, "--max-tokens", 20]
    plan(swapped, *words, "--max-tokens-valid", 51, recipe="fastformer_cnn_dm")
    with pytest.raises(ConfigurationError, match="of valid has 51 tokens"):
        plan(swapped, *words, recipe="fastformer_cnn_dm")


# --------------------------------------------------------------------------------------------------
# The launch


def gpus(monkeypatch, count, capability=(8, 0)):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda gpu: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.version, "hip", None)


@pytest.mark.parametrize("count, used", [(1, 1), (2, 2), (3, 2), (6, 4), (7, 4), (8, 4)])
def test_as_many_gpus_as_can_share_the_batch(monkeypatch, toy_data, count, used):
    """Of 64 tokens; the 8 of one of 8 processes have no room for the longest sentence, of 13."""
    gpus(monkeypatch, count)
    words = ["--", "--max-tokens", 64]
    todo = plan(toy_data.bin, *words)
    assert value(todo.command, "--max-tokens") == str(64 // used)
    told = [line for line in todo.summary if line.startswith(f"only {used} of {count} GPUs")]
    assert len(told) == (used < count)
    assert all("cannot share" in line or "room for 13" in line for line in told)
    if used < count:  # what was asked for is refused
        with pytest.raises(ConfigurationError, match="cannot share|room for 13"):
            plan(toy_data.bin, "--processes", count, *words)


def test_on_the_cpu(monkeypatch, toy_data):
    gpus(monkeypatch, 0)
    command = plan(toy_data.bin).command
    assert command[1:3] == ["-m", "fairseq_cli.train"] and "--cpu" in command
    assert not {"--fp16", "--bf16"} & set(command)
    assert value(command, "--max-tokens") == "4096"
    assert "--bf16" in plan(toy_data.bin, "--precision", "bf16").command
    with pytest.raises(ConfigurationError, match="--precision fp16 needs a GPU"):
        plan(toy_data.bin, "--precision", "fp16")


@pytest.mark.parametrize("has_bf16", [True, False])
def test_the_fastest_precision_of_a_cpu(monkeypatch, toy_data, has_bf16):
    gpus(monkeypatch, 0)
    monkeypatch.setattr(bf16, "cpu_has_bf16", lambda: has_bf16)
    command = plan(toy_data.bin, "--precision", "fastest").command
    assert ("--bf16" in command) == has_bf16 and "--fp16" not in command


@pytest.mark.parametrize("capability, flag", [((7, 0), "--fp16"), ((8, 0), "--bf16")])
def test_one_gpu_of_two_and_its_precision(monkeypatch, toy_data, capability, flag):
    gpus(monkeypatch, 2, capability)
    fastest = plan(toy_data.bin, "--processes", 1, "--precision", "fastest").command
    command = plan(toy_data.bin, "--processes", 1).command
    assert fastest == command
    assert command[1:3] == ["-m", "fairseq_cli.train"] and "--cpu" not in command
    assert value(command, "--distributed-world-size") == "1"
    assert [word for word in command if word in ("--fp16", "--bf16")] == [flag]
    command = plan(toy_data.bin, "--precision", "fp32").command
    assert not {"--fp16", "--bf16"} & set(command)
    command = plan(toy_data.bin, "--", "--fp16").command
    assert command.count("--fp16") == 1 and "--bf16" not in command


def test_a_training_resumes_in_its_precision(monkeypatch, toy_data, tmp_path):
    """An optimizer's state fits no other precision; "auto" differs from machine to machine."""

    def resume(*words):
        return plan(toy_data.bin, "--save-dir", tmp_path, *words)

    begun = resume("--cpu", "--precision", "bf16")
    (tmp_path / "checkpoint_last.pt").touch()
    settings.store(tmp_path, begun.settings)
    gpus(monkeypatch, 0)
    assert "--bf16" in resume().command
    monkeypatch.setattr(bf16, "cpu_has_bf16", lambda: False)
    assert "--bf16" in resume("--precision", "fastest").command
    settings.check_same(tmp_path, resume().settings)
    for words in (["--precision", "fp32"], ["--", "--amp"]):
        other = resume(*words).settings
        with pytest.raises(ConfigurationError, match="--precision was bf16, is (fp32|amp)"):
            settings.check_same(tmp_path, other)
    gpus(monkeypatch, 1, (8, 0))
    assert "--bf16" in resume().command
    gpus(monkeypatch, 1, (7, 0))
    with pytest.raises(ConfigurationError, match="in bf16, which this machine does not have"):
        resume()
    (tmp_path / "checkpoint_last.pt").unlink()
    assert "--fp16" in resume().command
    (tmp_path / "checkpoint_last.pt").touch()
    settings.store(tmp_path, resume("--precision", "fp16").settings)
    with pytest.raises(ConfigurationError, match="in fp16, which this machine .* another folder"):
        resume("--cpu")
    settings.mark_finished(tmp_path, resume().end)  # any machine may find that nothing is left
    settings.check_same(tmp_path, resume("--cpu").settings)


def test_a_folder_of_before_precisions_were_stored_takes_the_right_one(trained):
    path = trained.save_dir / "settings.json"
    stored = json.loads(path.read_text())
    assert stored.pop("precision") == "fp32"
    path.write_text(json.dumps(stored))
    trained("--max-update", "5")
    assert "precision" not in json.loads(path.read_text())


def test_all_gpus_of_several_machines(monkeypatch, toy_data):
    gpus(monkeypatch, 4)
    command = plan(toy_data.bin, "--nodes", 2, "--rendezvous", "node1:29400").command
    assert command[1:3] == ["-m", "torch.distributed.run"]
    assert value(command, "--nproc_per_node") == "4" and value(command, "--nnodes") == "2"
    assert value(command, "--rdzv_endpoint") == "node1:29400"
    assert "--distributed-world-size" not in command
    assert value(command, "--max-tokens") == value(command, "--max-tokens-valid") == "512"
    command = plan(toy_data.bin).command
    assert value(command, "--max-tokens") == "1024"
    assert value(command, "--rdzv_endpoint") == "localhost:0"


@pytest.mark.parametrize(
    "words, message",
    [
        (["--processes", "0"], "--processes 0: must be at least 1"),
        (["--processes", "3"], r"--processes 3, but this machine has 2 GPU\(s\)"),
        (["--nodes", "2"], "--nodes 2: give --rendezvous HOST:PORT for several machines"),
        (["--rendezvous", "a:1"], "--nodes 1: .* leave it out for one"),
        (["--", "--save-dir", "x"], "--save-dir is not allowed after --"),
        (["--", "--update-freq", "1.5"], "--update-freq: 1.5: give whole numbers"),
        (["--save-dir", "lr:0.1"], "--save-dir lr:0.1: fairseq cannot read paths with ':'"),
        (["--", "--distributed-world-size=2"], "--distributed-world-size is not allowed after"),
        (["--", "--dropuot", "0.1"], "fairseq-train does not take this: .*--dropuot"),
        (["--", "--arch", "transfomer"], "invalid choice: 'transfomer'$"),
        (["--", "--update-freq", "1,2"], "--update-freq: give one number"),
        (["--precision", "bf16", "--", "--fp16"], "--precision bf16 and --fp16, which the recipe"),
        (["--", "--share-all-embeddings"], "--share-all-embeddings needs one dictionary"),
        (["--", "--log-format", "json"], "--log-format json: this command reads the log"),
        (["--", "--optimizer", "sgd"], "--adam-betas stands in the recipe .* 'adam_betas: null'"),
    ],
)
def test_bad_options(monkeypatch, toy_data, words, message):
    gpus(monkeypatch, 2)
    with pytest.raises(ConfigurationError, match=message):
        plan(toy_data.bin, *words)


def test_a_mistake_in_a_settings_file_is_told_as_it_is(toy_data, tmp_path):
    (tmp_path / "own.yaml").write_text("model: {dropuot: 0.2}")
    with pytest.raises(ConfigurationError, match="fairseq-train does not take this: .*--dropuot"):
        plan(toy_data.bin, "--settings", tmp_path / "own.yaml", "--", "--lr", 0.1)


def test_the_optimizer_of_a_recipe_can_be_replaced(toy_data, tmp_path):
    (tmp_path / "own.yaml").write_text("optimizer: {_name: sgd, adam_betas: null}")
    command = plan(toy_data.bin, "--settings", tmp_path / "own.yaml").command
    assert value(command, "--optimizer") == "sgd" and "--adam-betas" not in command


def test_folders_are_not_set_in_files(toy_data, tmp_path):
    (tmp_path / "own.yaml").write_text("checkpoint: {save_dir: elsewhere}")
    with pytest.raises(ConfigurationError, match="--save-dir is not allowed in a recipe or --sett"):
        plan(toy_data.bin, "--settings", tmp_path / "own.yaml")
    (tmp_path / "own.yaml").write_text("distributed_training: {distributed_world_size: 2}")
    with pytest.raises(ConfigurationError, match="--distributed-world-size is not allowed in a re"):
        plan(toy_data.bin, "--settings", tmp_path / "own.yaml")


def test_bad_data(tmp_path, toy_data):
    with pytest.raises(ConfigurationError, match="no such folder; the prepare-"):
        plan(tmp_path / "data")
    (tmp_path / "data.part").mkdir()
    with pytest.raises(ConfigurationError, match="not finished: rerun it"):
        plan(tmp_path / "data")
    with pytest.raises(ConfigurationError, match="has no dictionaries"):
        plan(toy_data.raw)


def fake(folder, name, text):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n" + text)
    (folder / name).chmod(0o755)


@pytest.mark.parametrize("nodes", [1, 2])
def test_slurm(tmp_path, nodes):
    fake(tmp_path / "bin", "srun", 'printf "%s\\n" "$@"\n')
    fake(tmp_path / "bin", "scontrol", '[ "$3" = "a[1-2]" ] && printf "a1\\na2\\n"\n')
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_ID": "20007",
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_JOB_NODELIST": "a[1-2]",
        "SLURM_SUBMIT_DIR": str(FOLDER.parent.parent),
    }

    def submit(*words):
        return subprocess.run(
            ["bash", str(shutil.copy(str(FOLDER / "slurm.sbatch"), str(tmp_path))), *words],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            universal_newlines=True,
        )  # fmt: skip

    done = submit("transformer_ftc", "some data", "--", "--seed", "2")
    assert done.returncode == 0, done.stdout
    words = done.stdout.splitlines()
    words = words[words.index("bash") :]
    assert words[1:3] == [str(ROOT / "scripts" / "plugin.sh"), "train"]
    several = ["--nodes", "2", "--rendezvous", "a1:20007"] if nodes == 2 else []
    assert words[3:] == [*several, "transformer_ftc", "some data", "--", "--seed", "2"]
    environment["SLURM_SUBMIT_DIR"] = str(tmp_path)
    done = submit("transformer_ftc", "some data")
    assert done.returncode == 1 and "submit from the checkout" in done.stdout


# --- trainings ------------------------------------------------------------------------------------


@pytest.fixture
def by_loss(tmp_path):
    """The recipes choose by BLEU, whose beam search makes these short trainings long."""
    path = tmp_path / "by_loss.yaml"
    path.write_text(BY_LOSS)
    return ["--settings", str(path)]


def start(data, save_dir, *words):
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment["PATH"]
    command = ["bash", FOLDER / "transformer_ftc.sh", data, "--save-dir", save_dir, "--cpu"]
    return subprocess.Popen(
        [str(word) for word in (*command, *words)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
    )  # fmt: skip


def finish(process):
    output, _ = process.communicate(timeout=1200)
    return process.returncode, output


def losses(folder):
    log = (folder / "train.log").read_text()
    found = re.findall(r"train_inner \| .*?\bloss=([\d.]+).*num_updates=(\d+)", log)
    return {int(update): float(loss) for loss, update in found}


@pytest.mark.slow
def test_two_processes_train_as_one(toy_data, tmp_path, by_loss, run_train):
    class Here(jobs.Jobs):
        """Runs fairseq-train in this process, which has imported fairseq already."""

        def run(self, words, log, on_line, lock=None, threads=None):
            assert words[1:3] == ["-m", "fairseq_cli.train"]
            log.write_text(run_train(*words[3:]).output)
            return 0

    folders = [tmp_path / "one", tmp_path / "two processes"]
    words = ["--", *TINY, "--max-tokens", 400, "--update-freq", 2, "--warmup-updates", 2]
    words += ["--max-update", 3]
    for folder, processes, running in zip(folders, (1, 2), (Here(), jobs.Jobs())):
        options = ["--save-dir", folder, "--cpu", "--processes", processes, *by_loss]
        launch.train(plan(toy_data.bin, *options, *words), running, lambda line: None)
    expected = losses(folders[0])
    assert expected.keys() == {1, 2, 3}
    assert losses(folders[1]) == pytest.approx(expected, abs=0.0011)


@pytest.fixture
def trained(toy_data, tmp_path, run_train):
    """trained(words) resumes a finished training of 4 updates; what fairseq-train was given."""
    save_dir, commands = tmp_path / "run", []
    words = ["--", *TINY, "--max-tokens", 800, "--warmup-updates", 2]

    class Recorded(jobs.Jobs):
        def run(self, words, log, on_line, lock=None, threads=None):
            commands.append(words)
            (save_dir / "checkpoint_last.pt").touch()
            return 0

    def resume(*more, data=toy_data.bin):
        said = []
        todo = plan(data, "--save-dir", save_dir, "--cpu", *words, *more)
        launch.train(todo, Recorded(), said.append)
        return "\n".join(said)

    resume("--max-update", 4)
    resume.commands, resume.save_dir = commands, save_dir
    resume.longer = plan(toy_data.bin, "--save-dir", save_dir, "--cpu", *words, "--max-update", 9)
    return resume


def test_a_finished_training_is_kept(trained):
    for updates in ("4", "3"):
        said = trained("--max-update", updates, "--log-interval", "7")
        assert "kept: training is finished" in said
    assert len(trained.commands) == 1
    assert "kept" not in trained("--max-update", "5") and len(trained.commands) == 2
    (trained.save_dir / "checkpoint_last.pt").unlink()
    assert "kept" not in trained("--max-update", "5") and len(trained.commands) == 3


def test_a_finished_training_that_goes_on_is_not_finished(trained, monkeypatch):
    """Broken off, it holds more updates than the shorter command asked for: nothing is kept."""
    monkeypatch.setattr(jobs.Jobs, "run", lambda *arguments: 128 + signal.SIGTERM)
    with pytest.raises(jobs.JobFailed, match="stopped by SIGTERM"):
        launch.train(trained.longer, jobs.Jobs(), lambda line: None)
    assert "kept" not in trained("--max-update", "4")
    assert "kept" in trained("--max-update", "4")


@pytest.mark.parametrize("place", ["other/checkpoint_best.pt", "pretrained.pt"])
def test_a_rerun_resumes_and_does_not_read_where_it_began_again(trained, place):
    """fairseq reads --restore-file of another folder, or of the current one, at every start."""
    begin = ["--restore-file", place, "--reset-optimizer"]
    shutil.rmtree(str(trained.save_dir))
    for updates in ("5", "6"):
        trained("--max-update", updates, *begin)
    first, again = trained.commands[-2:]
    assert value(first, "--restore-file") == begin[1] and "--reset-optimizer" in first
    assert value(again, "--restore-file") == "checkpoint_last.pt"
    assert "--reset-optimizer" not in again
    # an earlier checkpoint of the folder itself is a wish to go back
    back = ["--restore-file", str(trained.save_dir / "checkpoint1.pt"), "--reset-meters"]
    trained("--max-update", "7", *back)
    assert value(trained.commands[-1], "--restore-file") == back[1]
    assert "--reset-meters" in trained.commands[-1]


def test_a_folder_holds_one_training(trained, toy_data, tmp_path):
    for others, message in (
        (["--lr", "1"], r"other settings \(--lr was \[0.0005\], is \[1.0\]\)"),
        (["--update-freq", "4"], "--max-tokens was 800, is 3200"),
        (["--seed", "2"], "--seed was 1, is 2"),
        (["--lr", "1", "--seed", "2"], "1 more"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            trained("--max-update", "6", *others)
    other = Path(shutil.copytree(str(toy_data.bin), str(tmp_path / "other")))
    with open(other / "dict.src.txt", "a") as dictionary:
        dictionary.write("more 1\n")
    with pytest.raises(ConfigurationError, match="a training with other data"):
        trained(data=other)
    other = Path(shutil.copytree(str(toy_data.bin), str(tmp_path / "tokens")))
    content = bytearray((other / "train.src-tgt.tgt.bin").read_bytes())
    content[0] ^= 1  # as many tokens, of another word
    (other / "train.src-tgt.tgt.bin").write_bytes(content)
    with pytest.raises(ConfigurationError, match="a training with other data"):
        trained(data=other)
    # how a batch is shared, and what is validated, may change
    said = trained("--max-update", "6", "--max-tokens", "400", "--update-freq", "2", "--eval-bleu")
    assert "before, it was 800 tokens x 1 process(es) x update-freq 1" in said
    assert "some sentences twice" in said
    (trained.save_dir / "settings.json").unlink()
    with pytest.raises(ConfigurationError, match="checkpoints that no recipe wrote"):
        trained("--max-update", "6")


def test_a_folder_can_be_moved_with_the_checkpoint_that_it_began_with(toy_data, tmp_path):
    def begun(folder, at):
        return plan(toy_data.bin, "--save-dir", folder, "--", "--finetune-from-model", at).settings

    here, there = tmp_path / "a" / "run", tmp_path / "b" / "run"
    name = "first/checkpoint_best.pt"
    assert begun(here, here / name)["finetune_from_model"] == name
    for stored in (name, f"{here}/{name}"):  # an older release stored the whole path
        there.mkdir(parents=True, exist_ok=True)
        (there / "checkpoint_last.pt").touch()
        settings.store(there, {**begun(here, here / name), "finetune_from_model": stored})
        settings.check_same(there, begun(there, there / name))
    for other in (tmp_path / "checkpoint_best.pt", there / "checkpoint_best.pt"):
        with pytest.raises(ConfigurationError, match="--finetune-from-model was"):
            settings.check_same(there, begun(there, other))


def test_a_finished_decay_is_not_to_be_trained_on(trained):
    words = ["--lr-scheduler", "polynomial_decay", "--max-update"]
    trained.commands.clear()
    shutil.rmtree(str(trained.save_dir))
    trained(*words, "4")
    said = trained(*words, "4")
    assert "finished; its learning rate has ended; to train longer, choose another" in said
    shutil.rmtree(str(trained.save_dir))
    for _ in range(2):
        said = trained(*words, "4", "--total-num-update", "9")
    assert "finished; train longer with" in said


def test_a_schedule_that_ends_with_the_training_has_one_length(trained):
    words = ["--lr-scheduler", "cosine", "--max-update"]
    shutil.rmtree(str(trained.save_dir))
    trained(*words, "4")
    assert "finished; its learning rate has ended" in trained(*words, "4")
    with pytest.raises(ConfigurationError, match="--max-update was 4, is 6"):
        trained(*words, "6")
    shutil.rmtree(str(trained.save_dir))
    trained.commands.clear()
    for length in ("4", "6"):
        trained(*words, length, "--lr-period-updates", "9")
    assert len(trained.commands) == 2


@pytest.mark.parametrize("content", ["", '{"lr": [0.0', "[1]", '"x"'])
def test_damaged_files_of_a_folder(trained, content):
    (trained.save_dir / "finished").write_text(content)
    assert "kept" not in trained("--max-update", "4")  # resumed, and at its end at once
    assert "kept" in trained("--max-update", "4")
    (trained.save_dir / "settings.json").write_text(content)
    with pytest.raises(ConfigurationError, match="settings.json is damaged, .* restore it, or"):
        trained("--max-update", "4")


@pytest.mark.parametrize(
    "status, line", [(128 + signal.SIGTERM, ""), (1, f"WARNING | {stopping.SAVED}\n")]
)
def test_a_training_that_was_asked_to_stop_says_how_to_go_on(
    toy_data, tmp_path, monkeypatch, status, line
):
    """Also if another machine was asked, or torchrun, whose status does not tell."""

    def run(self, command, log, on_line, *more):
        on_line(line)
        return status

    todo = plan(toy_data.bin, "--save-dir", tmp_path, "--cpu", "--", *TINY)
    monkeypatch.setattr(jobs.Jobs, "run", run)
    with pytest.raises(jobs.JobFailed, match="stopped by SIGTERM.*rerun to resume$"):
        launch.train(todo, jobs.Jobs(), lambda line: None)
    assert not (tmp_path / "finished").exists()


@pytest.mark.slow
def test_failure_says_why_and_the_folder_can_be_used_again(toy_data, tmp_path):
    words = ["--save-dir", tmp_path, "--cpu", "--", *TINY, "--max-update", 1]
    todo = plan(toy_data.bin, *words, "--encoder-attention-heads", 3)
    message = "^transformer_ftc: training failed: --encoder-attention-heads 3 does not divide"
    with pytest.raises(jobs.JobFailed, match=message) as error:
        launch.train(todo, jobs.Jobs(), lambda line: None)
    assert str(error.value).endswith(f"; its log is {tmp_path / 'train.log'}")
    assert "\n" not in str(error.value) and not (tmp_path / "finished").exists()
    # nothing was trained: other settings may
    settings.check_same(tmp_path, plan(toy_data.bin, *words).settings)


@pytest.mark.slow
def test_one_training_at_a_time_and_none_outlives_its_parent(toy_data, tmp_path, by_loss):
    words = [*by_loss, "--", *TINY, "--max-update", 100000]
    process = start(toy_data.bin, tmp_path, *words)
    log = tmp_path / "train.log"
    while not (log.exists() and "train_inner" in log.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    with pytest.raises(ConfigurationError, match="another training is running"):
        with jobs.alone_in(tmp_path, "training", patience=0):
            pass
    process.kill()
    process.wait()
    process.stdout.close()
    if sys.platform == "linux":
        with jobs.alone_in(tmp_path, "training", patience=1200):
            pass  # the training holds the lock as long as it lives
