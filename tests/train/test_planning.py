"""The fairseq-train command for a recipe, a folder of data and a machine, and refusals."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from fairseq_plugins.cli import train as command
from fairseq_plugins.data.prepared_folder import RECORD
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options import arguments, recipes
from fairseq_plugins.system import cpu
from fairseq_plugins.train import planning
from fairseq_plugins.train.fairseq_program import words_of
from fairseq_plugins.train.run_folder import Run
from tests import labelled
from tests.train.conftest import BY_LOSS, gpus, plan, value


@pytest.mark.parametrize("asked, exported, expected", [(3, "2", 3), (None, "2", 2), (3, None, 3)])
def test_threads_are_those_asked_for(toy_data, monkeypatch, asked, exported, expected):
    monkeypatch.delenv("OMP_NUM_THREADS")
    if exported:
        monkeypatch.setenv("OMP_NUM_THREADS", exported)
    words = ["--threads", str(asked)] if asked else []
    request = command.read_request(["transformer_ftc", str(toy_data.bin), "--cpu", *words])
    assert planning.plan(request).threads == expected


def test_a_request_becomes_the_command_line_that_it_came_from(toy_data, tmp_path):
    """As `reproduce` starts trainings."""
    files = [planning.recipes.find(name) for name in ("reduced_cpu", "low_resource")]
    words = [toy_data.bin, "--save-dir", tmp_path, "--cpu", "--eager", "--processes", 2]
    words += ["--settings", files[0], "--settings", files[1]]
    words += "--user-dir a --user-dir b --threads 3 -- --lr 1".split()
    request = command.read_request(["transformer_ftc", *map(str, words)])
    assert command.read_request(arguments.words_of(request)) == request


def test_processes_share_the_cores(monkeypatch):
    monkeypatch.setattr(cpu.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")  # of nested regions, too: not one number
    assert [cpu.available_threads(n) for n in (1, 3, 9)] == [8, 2, 1]


def test_later_options_win(toy_data, tmp_path):
    (tmp_path / "a.args").write_text("# a comment\n--lr 1e-3 --dropout 0.2 # here too\n")
    (tmp_path / "b.yaml").write_text("criterion: {label_smoothing: 0}\nmodel: {dropout: 0.1}\n")
    files = ["--settings", tmp_path / "a.args", "--settings", tmp_path / "b.yaml"]
    found = plan(toy_data.bin, *files, "--", "--label-smoothing", 0.2).settings
    expected = {"lr": [1e-3], "dropout": 0.1, "label_smoothing": 0.2, "warmup_updates": 4000}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "task, updates", [("translation", 1500), ("summarization", 1500), ("classification", 600)]
)
def test_the_reduced_setting_of_a_task_fits_all_its_recipes(
    task, updates, make_toy_data, documents, tmp_path
):
    if task == "classification":
        data, _ = labelled.prepare(tmp_path)
    else:
        data = documents
    if task == "translation":
        data = make_toy_data(tmp_path, {"train": 9, "valid": 2}, joined=True).bin
    names = [name for name in recipes.names() if recipes.find(name).parent.name == task]
    assert len(names) > 5
    for name in names:
        todo = plan(data, "--settings", "reduced_cpu", recipe=name)
        assert (todo.given.max_update, todo.given.max_epoch or 0) == (updates, 0), name


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
    assert command[1:3] == words_of("train")[:2] and "--cpu" in command
    assert not {"--fp16", "--bf16"} & set(command)
    assert value(command, "--max-tokens") == "4096"
    assert "--bf16" in plan(toy_data.bin, "--precision", "bf16").command
    with pytest.raises(ConfigurationError, match="--precision fp16 needs a GPU"):
        plan(toy_data.bin, "--precision", "fp16")


def test_one_gpu_captures_the_steps_of_a_new_training(monkeypatch, toy_data, tmp_path):
    """Earlier trainings go on as they began; several GPUs and other tasks capture if asked."""
    here = [toy_data.bin, "--save-dir", tmp_path / "run"]
    gpus(monkeypatch, 1)
    todo = plan(*here)
    assert "--cuda-graphs" in todo.command and value(todo.command, "--num-workers") == "2"
    for given in (0, 1):
        assert value(plan(*here, "--", "--num-workers", given).command, "--num-workers") == str(
            given
        )
    assert value(plan(*here, "--", "--cuda-graphs").command, "--num-workers") == "2"
    assert "--cuda-graphs" in plan(*here, "--", "--bf16").command
    for words in (["--eager"], ["--precision", "fp32"], ["--cpu"], ["--", "--amp"]):
        assert "--cuda-graphs" not in plan(*here, *words).command
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    (run.folder / "checkpoint_last.pt").touch()
    run.store(todo.settings)
    assert "--cuda-graphs" in plan(*here).command
    elsewhere = plan(*here, "--eager").settings
    assert run.check_same(elsewhere) == {**todo.settings, "reached": None}
    assert elsewhere["captured_steps"]
    gpus(monkeypatch, 2)
    assert "--cuda-graphs" not in plan(toy_data.bin).command
    given = plan(toy_data.bin).given
    request = command.read_request(["transformer_ftc", str(toy_data.bin)])
    assert planning.capture_options(request, [], given, None, True, 1)
    for given.task in ("imdb_classification", "translation_lev"):
        assert planning.capture_options(request, [], given, None, True, 1) == []


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
    gpus(monkeypatch, 1)
    command = plan(toy_data.bin, "--nodes", 2, "--rendezvous", "node1:29400").command
    assert command[1:3] == ["-m", "torch.distributed.run"]
    assert not {"--distributed-world-size", "--cuda-graphs"} & set(command)


def test_machines_that_are_left_have_the_same_batch(toy_data):
    """Each accumulates more batches; one of three cannot without smaller ones."""
    todo = plan(
        toy_data.bin, "--nodes", "1:4", "--rendezvous", "a:1", "--cpu", "--tokens-per-process", 128
    )
    assert value(todo.command, "--nnodes") == "1:4"
    found = {
        count: [value(words, "--max-tokens"), value(words, "--update-freq")]
        for count, (_, *words) in todo.shares.items()
    }
    assert found == {1: ["128", "32"], 2: ["128", "16"], 3: ["124", "11"], 4: ["128", "8"]}
    told = "3 of 4 machines train; an update: 124 tokens x 3 process(es) x update-freq 11 = 4,092"
    assert todo.shares[3][0] == told


@pytest.mark.parametrize(
    "words, message",
    [
        (["--processes", "0"], "--processes 0: must be from 1 to 1024"),
        (["--processes", "99999999999"], "--processes 99999999999: must be from 1 to 1024"),
        (["--processes", "3"], r"--processes 3, but this machine has 2 GPUs"),
        (["--nodes", "2"], "--nodes 2 --rendezvous is missing: several machines need --rendezvous"),
        (["--rendezvous", "a:1"], "--nodes 1 --rendezvous a:1: .* remove it for one"),
        (
            ["--nodes", "2", "--rendezvous", "a"],
            "--rendezvous a: .* HOST:PORT, such as",
        ),
        (["--nodes", "4:1"], "--nodes 4:1: give a number of machines from 1 to 1024, or the least"),
        (["--nodes", "1:x", "--rendezvous", "a:1"], "--nodes 1:x: give a number"),
        (["--nodes", ":2"], "--nodes :2: give a number"),
        (["--", "--save-dir", "x"], "--save-dir is not allowed after --"),
        (["--", "--update-freq", "1.5"], "--update-freq: 1.5: give whole numbers"),
        (["--", "--max-tokens", "-5"], "^--max-tokens -5: must be at least 1$"),
        (["--", "--lr", "0.1,-1"], "^--lr -1.0: must be at least 0$"),
        (["--", "--seed", "1.5"], "^--seed '1.5': must be a whole number$"),
        (["--", "--lr", "5e-"], "--lr: 5e- is not a number"),
        (["--save-dir", "lr:0.1"], "--save-dir lr:0.1: fairseq cannot read paths with ':'"),
        (["--", "--distributed-world-size=2"], "--distributed-world-size is not allowed after"),
        (["--", "--dropping", "0.1"], "^fairseq-train does not take --dropping 0.1$"),
        (["--", "--dropuot", "0.1"], r"does not take --dropuot 0.1: did you mean --dropout\?$"),
        (["--max-update", "9"], "--max-update is unknown: options for .* at the end, after --$"),
        (["--safe-dir", "x"], "options for .* at the end, after --; did you mean --save-dir"),
        (["extra"], "^too many arguments: extra: give RECIPE DATA$"),
        (["--", "--arch", "transfomer"], "^--arch transfomer is unknown: did you mean transformer"),
        (["--", "--update-freq", "1,2"], "--update-freq: give one number"),
        (["--save-dir", "/dev/null/x"], "--save-dir /dev/null/x: /dev/null is not a folder that"),
        (["--precision", "bf16", "--", "--fp16"], "--precision bf16 and --fp16, which the recipe"),
        (["--save-dir", ""], "^--save-dir '' is empty: give a path$"),
        (["--eager", "--", "--cuda-graphs"], "--eager and --cuda-graphs exclude each other"),
        (["--", "--seed", "-1"], "^--seed -1: must be from 0 to 4294967295$"),
        (["--", "--num-workers", "-1"], "^--num-workers -1: must be at least 0$"),
        (["--", "--clip-norm", "-1"], "^--clip-norm -1.0: must be at least 0$"),
        (["--", "--train-subset", "trian"], "--train-subset trian: DATA .* has no such split"),
        (
            ["--", "--source-lang", "x", "--target-lang", "tgt"],
            "--train-subset train: DATA",
        ),
        (["--", "--log-format", "json"], "--log-format json: this command needs --log"),
        (["--", "--optimizer", "sgd"], "--adam-betas, from the recipe .* 'adam_betas: null'"),
    ],
)
def test_bad_options(monkeypatch, toy_data, words, message):
    gpus(monkeypatch, 2)
    with pytest.raises(ConfigurationError, match=message):
        plan(toy_data.bin, *words)


def test_data_of_another_task_are_refused(tmp_path):
    tasks = ("translation", "translation_sampled", "summarization", "classification", "other")
    for settings, refused in (
        ({"task": "classification"}, tasks[:3]),
        ({"source_lang": "de"}, tasks[3:4]),
        ({}, ()),
    ):
        (tmp_path / RECORD).write_text(json.dumps({"settings": settings}))
        for task in tasks:
            told = pytest.raises(ConfigurationError, match=f"was prepared for .*--task {task} is")
            with told if task in refused else contextlib.nullcontext():
                planning.check_task(tmp_path, task)


def test_folders_are_not_set_in_files(toy_data, tmp_path):
    (tmp_path / "own.yaml").write_text("checkpoint: {save_dir: elsewhere}")
    with pytest.raises(ConfigurationError, match="--save-dir is not allowed in a recipe or --sett"):
        plan(toy_data.bin, "--settings", tmp_path / "own.yaml")
    (tmp_path / "own.yaml").write_text("distributed_training: {distributed_world_size: 2}")
    with pytest.raises(ConfigurationError, match="--distributed-world-size is not allowed in a re"):
        plan(toy_data.bin, "--settings", tmp_path / "own.yaml")
