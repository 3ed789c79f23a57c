"""The recipes: what they train with, on how many processes, and how they go on or refuse to."""

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from fairseq_plugins.errors import ConfigurationError
from scripts import recipe_settings, train_recipe
from scripts.recipe_settings import Batch, share

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "translation"
COMMON = FOLDER / "iwslt14_de_en.args"
NAMES = sorted(path.stem for path in FOLDER.glob("*.sh") if path.stem != "train")
TINY = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2 "
    "--decoder-embed-dim 16 --decoder-ffn-embed-dim 16 --decoder-attention-heads 2 "
    "--encoder-blocks 1,1 --decoder-layers 1 --dropout 0 --log-interval 1 "
    "--no-epoch-checkpoints --num-workers 0"
).split()

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def recipe_options(name):
    """The words that a recipe gives to train.sh, without running Python."""
    shown = 'exec() { printf "%s\\n" "$@"; }; source "$0" DATA --processes 3'
    done = subprocess.run(
        ["bash", "-c", shown, str(FOLDER / f"{name}.sh")],
        stdout=subprocess.PIPE, universal_newlines=True, check=True,
    )  # fmt: skip
    command, script, its_name, options, *rest = done.stdout.splitlines()
    assert command == "bash" and Path(script).samefile(FOLDER / "train.sh")
    assert rest == ["DATA", "--processes", "3"]
    return its_name, options


def plan(data, *words, options="--arch transformer_ftc_iwslt_de_en"):
    command = [str(data), "--name", "test", "--common", str(COMMON), f"--options={options}"]
    return train_recipe.plan(train_recipe.read_arguments(command + [str(word) for word in words]))


def value(command, option):
    """The last value of an option on a command line, which is the one that counts."""
    return [after for word, after in zip(command, command[1:]) if word == option][-1]


# --------------------------------------------------------------------------------------------------
# What they train with


def test_every_recipe_has_a_yaml_file_and_is_in_the_readme():
    yaml = {path.stem for path in (FOLDER / "config").glob("*.yaml")} - {COMMON.stem}
    assert set(NAMES) == yaml and len(NAMES) == 10
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"`{name}`" in readme
        assert recipe_options(name)[0] == name
        text = (FOLDER / f"{name}.sh").read_text(encoding="utf-8")
        assert f"bash examples/translation/{name}.sh data/iwslt14" in text
        assert f"bash scripts/evaluate.sh data/iwslt14 runs/{name}" in text
        assert f"--config-name {name} " in (FOLDER / "config" / f"{name}.yaml").read_text()


def composed(name, data):
    """The configuration that fairseq-hydra-train hands to the training."""
    from fairseq.dataclass.initialize import add_defaults, hydra_init
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    hydra_init(name)
    overrides = [f"task.data={data}", "checkpoint.save_dir=saved"]
    with initialize_config_dir(config_dir=str(FOLDER / "config")):
        cfg = compose(config_name=name, overrides=overrides)
    add_defaults(cfg)
    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_yaml_and_script_say_the_same(name, toy_data):
    from fairseq.models import ARCH_CONFIG_REGISTRY

    words = [str(toy_data.bin), *recipe_settings.read_settings(COMMON)]
    words += [*shlex.split(recipe_options(name)[1]), "--save-dir", "saved"]
    args = recipe_settings.parse(words + ["--log-format", "simple", "--log-interval", "50"])
    expected = OmegaConf.to_container(
        convert_namespace_to_omegaconf(args), resolve=True, enum_to_str=True
    )
    found = composed(name, toy_data.bin)

    groups = ["common", "task", "optimizer", "lr_scheduler", "dataset", "optimization"]
    groups += ["checkpoint", "criterion"]
    for group in groups:
        known = set(found[group]) & set(expected[group])
        assert len(known) > 2 or group == "criterion" and len(known) > 1
        for option in known - {"no_progress_bar", "seed", "no_seed_provided"}:
            assert found[group][option] == expected[group][option], (group, option)
    assert expected["criterion"].get("rdrop_alpha") == found["criterion"].get("rdrop_alpha")

    # the model's options, once the architecture has filled in the rest, as build_model does
    model = OmegaConf.create(found["model"])
    ARCH_CONFIG_REGISTRY[found["model"]["_name"]](model)
    for option, setting in OmegaConf.to_container(model).items():
        if option != "_name":
            assert getattr(args, option) == setting, option
    assert found["model"]["_name"] == args.arch


@pytest.mark.parametrize("text, message", [("--lr '1", "cannot be read"), (None, "No such file")])
def test_settings_that_cannot_be_read(tmp_path, text, message):
    if text is not None:
        (tmp_path / "some.args").write_text(text)
    with pytest.raises(ConfigurationError, match=f"--settings .*some.args.*{message}"):
        recipe_settings.read_settings(tmp_path / "some.args")


def test_what_comes_later_wins(toy_data, tmp_path):
    (tmp_path / "a.args").write_text("# a comment\n--lr 1e-3 --dropout 0.1 # here too\n")
    (tmp_path / "b.args").write_text("--lr 2e-3\n--label-smoothing 0\n")
    files = ["--settings", tmp_path / "a.args", "--settings", tmp_path / "b.args"]
    settings = plan(toy_data.bin, *files, "--", "--label-smoothing", 0.2).settings
    found = {
        name: settings[name] for name in ("lr", "dropout", "label_smoothing", "warmup_updates")
    }
    expected = {"lr": [2e-3], "dropout": 0.1, "label_smoothing": 0.2, "warmup_updates": 4000}
    assert found == expected


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


def test_limit_takes_no_smaller_batches_than_it_must():
    assert share(Batch(4096, None, 1), 1, 2048) == Batch(2048, None, 2)
    assert share(Batch(4096, None, 1), 2, 2048) == Batch(2048, None, 1)
    assert share(Batch(4096, None, 4), 2, 4096) == Batch(4096, None, 2)


@pytest.mark.parametrize(
    "whole, processes, limit, message",
    [
        (Batch(4096, None, 1), 3, None, r"3 processes .*--max-tokens 4096 .*start 1, 2 or 4 "),
        (Batch(4096, 33, 1), 2, None, "--max-tokens 4096 and --batch-size 33 .*start 1 "),
        (Batch(4096, None, 1), 1, 0, "--tokens-per-process 0 must be above 0"),
        (Batch(None, 32, 1), 1, 100, "--tokens-per-process 100 must .*limits --max-tokens, which"),
        (Batch(64, 3, 1), 1, 10, "1 process.* and --tokens-per-process 10 cannot share"),
    ],
)
def test_a_batch_that_cannot_be_shared(whole, processes, limit, message):
    with pytest.raises(ConfigurationError, match=message):
        share(whole, processes, limit)


def test_sentences_must_fit_into_the_share_of_a_process(toy_data):
    longest = recipe_settings.longest_sentences(toy_data.bin, ["train", "valid", "nothing"])
    lines = (toy_data.raw / "train.src").read_text().splitlines()
    assert longest["train"] == max(len(line.split()) for line in lines) + 1  # end of sentence
    assert set(longest) == {"train", "valid"}
    with pytest.raises(ConfigurationError, match="longest sentence of train has 13 .*--tokens-per"):
        plan(toy_data.bin, "--tokens-per-process", 8)
    with pytest.raises(ConfigurationError, match="--max-tokens 13 or more is needed"):
        plan(toy_data.bin, "--", "--max-tokens", 12)


# --------------------------------------------------------------------------------------------------
# The launch


def gpus(monkeypatch, count, capability=(8, 0)):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda gpu: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.version, "hip", None)


def test_on_the_cpu(monkeypatch, toy_data):
    gpus(monkeypatch, 0)
    command = plan(toy_data.bin).command
    assert command[1:3] == ["-m", "fairseq_cli.train"] and "--cpu" in command
    assert not {"--fp16", "--bf16"} & set(command)
    assert value(command, "--max-tokens") == "4096"
    assert "--bf16" in plan(toy_data.bin, "--precision", "bf16").command
    with pytest.raises(ConfigurationError, match="--precision fp16 needs a GPU"):
        plan(toy_data.bin, "--precision", "fp16")


@pytest.mark.parametrize("capability, flag", [((7, 0), "--fp16"), ((8, 0), "--bf16")])
def test_one_gpu_of_two_and_its_precision(monkeypatch, toy_data, capability, flag):
    gpus(monkeypatch, 2, capability)
    command = plan(toy_data.bin, "--processes", 1).command
    assert command[1:3] == ["-m", "fairseq_cli.train"] and "--cpu" not in command
    assert value(command, "--distributed-world-size") == "1"
    assert [word for word in command if word in ("--fp16", "--bf16")] == [flag]
    command = plan(toy_data.bin, "--precision", "fp32").command
    assert not {"--fp16", "--bf16"} & set(command)
    command = plan(toy_data.bin, "--", "--fp16").command
    assert command.count("--fp16") == 1 and "--bf16" not in command


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
        (["--processes", "0"], "--processes 0: at least 1"),
        (["--processes", "3"], r"--processes 3, but this machine has 2 GPU\(s\)"),
        (["--nodes", "2"], "--nodes 2: several machines need --rendezvous"),
        (["--rendezvous", "a:1"], "--nodes 1: .* one must not have it"),
        (["--", "--save-dir", "x"], "--save-dir cannot stand behind --"),
        (["--", "--distributed-world-size=2"], "--distributed-world-size cannot stand behind"),
        (["--", "--dropuot", "0.1"], "fairseq-train does not take this: .*--dropuot"),
        (["--", "--arch", "transfomer"], "invalid choice: 'transfomer'$"),
        (["--", "--update-freq", "1,2"], "--update-freq: give one number"),
        (["--precision", "bf16", "--", "--fp16"], "--precision bf16 and a flag behind --"),
        (["--", "--share-all-embeddings"], "--share-all-embeddings needs one dictionary"),
    ],
)
def test_bad_options(monkeypatch, toy_data, words, message):
    gpus(monkeypatch, 2)
    with pytest.raises(ConfigurationError, match=message):
        plan(toy_data.bin, *words)


def test_bad_data(tmp_path, toy_data):
    with pytest.raises(ConfigurationError, match="no such folder; scripts/prepare_"):
        plan(tmp_path / "data")
    (tmp_path / "data.part").mkdir()
    with pytest.raises(ConfigurationError, match="not finished: run it again"):
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
    assert words[1] == str(FOLDER / "transformer_ftc.sh")
    several = ["--nodes", "2", "--rendezvous", "a1:20007"] if nodes == 2 else []
    assert words[2:] == [*several, "some data", "--", "--seed", "2"]
    done = submit("transformer_fct", "some data")
    assert done.returncode == 1 and "'transformer_fct': no such recipe" in done.stdout


# --------------------------------------------------------------------------------------------------
# Trainings


def start(data, save_dir, *words):
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment["PATH"]
    command = ["bash", FOLDER / "transformer_ftc.sh", data, "--save-dir", save_dir, "--cpu"]
    return subprocess.Popen(
        [str(word) for word in (*command, *words)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
    )  # fmt: skip


def finish(process):
    output, _ = process.communicate(timeout=280)
    return process.returncode, output


def losses(folder):
    log = (folder / "train.log").read_text()
    found = re.findall(r"train_inner \| .*?\bloss=([\d.]+).*num_updates=(\d+)", log)
    return {int(update): float(loss) for loss, update in found}


def test_two_processes_train_as_one_and_go_on(toy_data, tmp_path, capsys, monkeypatch):
    folders = [tmp_path / "one", tmp_path / "two processes"]
    words = ["--", *TINY, "--max-tokens", 400, "--update-freq", 2, "--warmup-updates", 2]
    first = [
        start(toy_data.bin, folders[0], *words, "--max-update", 4),
        start(toy_data.bin, folders[1], "--processes", 2, *words, "--max-update", 2),
    ]
    for process in first:
        status, output = finish(process)
        assert status == 0, output
    assert "400 tokens x 2 process(es) x update-freq 1 = 800" in output
    assert losses(folders[1]).keys() == {1, 2}
    more = start(toy_data.bin, folders[1], "--processes", 2, *words, "--max-update", 4)
    status, output = finish(more)
    assert status == 0 and "going on from update 2" in output, output
    expected = losses(folders[0])
    assert expected.keys() == {1, 2, 3, 4}
    assert losses(folders[1]) == pytest.approx(expected, abs=0.0011)

    # in this folder nothing but the same training goes on; and it has ended
    recipe = [toy_data.bin, "--name", "test", "--common", COMMON, "--cpu"]
    recipe += ["--options=--arch transformer_ftc_iwslt_de_en", "--save-dir", folders[0], *words]
    recipe = [str(word) for word in recipe]
    log = (folders[0] / "train.log").read_bytes()
    monkeypatch.setattr(train_recipe, "train", lambda *arguments: 0)
    for updates in ("4", "3"):
        assert train_recipe.main([*recipe, "--max-update", updates, "--log-interval", "7"]) == 0
        assert "kept: it is trained already" in capsys.readouterr().out
    for others, message in (
        (["--lr", "1"], r"other settings \(--lr was \[0.0005\], is \[1.0\]\)"),
        (["--update-freq", "4"], "--max-tokens was 800, is 1600"),
        (["--seed", "2"], "--seed was 1, is 2"),
        (["--lr", "1", "--seed", "2"], "1 more"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            train_recipe.main([*recipe, "--max-update", "6", *others])
    other = shutil.copytree(str(toy_data.bin), str(tmp_path / "other"))
    with open(Path(other) / "dict.src.txt", "a") as dictionary:
        dictionary.write("more 1\n")
    with pytest.raises(ConfigurationError, match="a training with other data"):
        train_recipe.main([other, *recipe[1:]])
    before = [str(folders[1]) if word == str(folders[0]) else word for word in recipe]
    assert train_recipe.main([*before, "--max-update", "6"]) == 0
    output = capsys.readouterr().out
    assert "400 tokens x 1 process(es) x update-freq 2 = 800" in output
    assert "before it was 400 tokens x 2 process(es)" in output and "seen twice" in output
    (folders[0] / "settings.json").unlink()
    with pytest.raises(ConfigurationError, match="checkpoints that no recipe wrote"):
        train_recipe.main(recipe)
    assert (folders[0] / "train.log").read_bytes() == log


def test_failure_says_why_and_may_be_mended_in_the_same_folder(toy_data, tmp_path):
    words = ["--", *TINY, "--max-update", 1]
    status, output = finish(start(toy_data.bin, tmp_path, *words, "--encoder-attention-heads", 3))
    assert status == 1
    *_, cause, last = output.splitlines()
    assert cause.startswith("error: --encoder-attention-heads 3 does not divide")
    assert last == f"transformer_ftc: training failed; its log is {tmp_path / 'train.log'}"
    assert not (tmp_path / "finished").exists()
    settings = plan(toy_data.bin, "--save-dir", tmp_path, *words).settings
    recipe_settings.check_same(tmp_path, settings)  # nothing was trained: other settings may


def test_one_training_at_a_time_and_none_outlives_its_script(toy_data, tmp_path):
    words = ["--", *TINY, "--max-update", 100000]
    process = start(toy_data.bin, tmp_path, *words)
    deadline = time.monotonic() + 200
    log = tmp_path / "train.log"
    while not (log.exists() and "train_inner" in log.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(ConfigurationError, match="another training is at work"):
        with train_recipe.alone_in(tmp_path, "training"):
            pass
    process.kill()
    process.wait()
    if sys.platform != "linux":
        return
    with open(tmp_path / "lock", "w") as lock:  # which the training holds as long as it lives
        for _ in range(100):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail("the training goes on without its script")
    process.stdout.close()
