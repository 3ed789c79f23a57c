"""Which trainings the rows are, and what is refused before any of them starts."""

import shutil
from pathlib import Path

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import reproduce
from fairseq_plugins.system import cpu
from tests.conftest import SIZES
from tests.lab.reproduction.conftest import FTC_PAPER, make


@pytest.mark.parametrize(
    "words, message",
    [
        (["--", "--encoder-blocks", "3,3"], "--encoder-blocks: rows set it"),
        (["--", "--arch=transformer"], "--arch: rows set it"),
        (["--", "--seed", "3"], "use --seeds"),
        (["--settings", "nowhere.args"], "nowhere.args: no such file"),
        (
            ["--", "--learning-rate", "1"],
            "row transformer .*: fairseq-train does not take --learning",
        ),
        (["--", "--decoder-attention-heads", "5"], "row transformer .*: "),
        # sizes that only the row of six blocks cannot have
        (["--", "--encoder-embed-dim", "64"], "row fc-6x4 .* --feature-window 2 over 5 later"),
    ],
)
def test_mistakes_are_told_before_any_row_trains(data, settings, tmp_path, words, message):
    rows = ["--rows", "transformer", "fc-6x4", "--settings", settings]
    with pytest.raises(ConfigurationError, match=message) as error:
        make(data, tmp_path / "out", *rows, *words)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out" / "runs").exists()


def test_data_that_cannot_be_used(data, toy_data, tmp_path):
    for folder, message in (
        (tmp_path / "no", "no such folder"),
        (toy_data.bin, "preparation.json cannot be used"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            make(folder, tmp_path / "out")
    with pytest.raises(ConfigurationError, match="DATA is missing"):
        reproduce.main(["ftc", "--out", str(tmp_path / "out")])
    copied = Path(shutil.copytree(str(data), str(tmp_path / "copied")))
    (copied / "text" / "raw" / "test.en").unlink()  # only scoring needs it
    with pytest.raises(ConfigurationError, match="raw/test.en is missing; .* holds test"):
        make(copied, tmp_path / "out", "--rows", "transformer", "--seeds", 1)
    for path in copied.glob("test.*.idx"):
        path.unlink()
    with pytest.raises(ConfigurationError, match="has no test: prepare train"):
        make(copied, tmp_path / "out")


@pytest.mark.parametrize("option", ["--finetune-from-model", "--restore-file"])
def test_rows_that_begin_with_other_data_have_their_own_beginning(data, tmp_path, option):
    words = ["--rows", "ftc_both", "--", option, "x.pt"]
    with pytest.raises(ConfigurationError, match=f"{option}: this row begins with a training on"):
        make(data, tmp_path, *words, table="low-resource")


def test_all_thirteen_rows_can_be_built(data, settings, tmp_path):
    made = make(data, tmp_path, "--settings", settings)
    sizes = {name: model["parameters"] for name, model in made.models.items()}
    assert list(sizes) == [row.name for row in FTC_PAPER.rows]
    assert sizes["tc-2x3"] > sizes["fc-2x3-linear"] > sizes["fc-2x3"]
    assert sizes["tc-2x3"] == sizes["transformer"]
    assert sizes["fc-2x3"] == sizes["ftc-2x3"] > sizes["fc-2x3-window4"]
    assert made.data["pairs"].keys() == SIZES.keys()


def test_rows_with_few_pairs_differ_only_in_what_they_compare(data, tmp_path):
    made = make(data, tmp_path, table="low-resource")
    stages = [
        (row.name, bool(number), vars(plan.given))
        for row in made.rows
        for number, plan in enumerate(made.plans[f"{row.name}-seed1"])
    ]
    assert {name for name, later, _ in stages if later} == {
        "ftc_both", "ftc_both_simcut", "ftc_all", "transformer_both",
    }  # fmt: skip
    for name, later, given in stages:
        first = next(each for row, other, each in stages if row == "ftc_both" and other == later)
        same = ("lr", "max_update", "total_num_update", "max_tokens", "dropout", "patience")
        same += ("encoder_embed_dim", "encoder_ffn_embed_dim", "decoder_embed_dim")
        assert [given[key] for key in same] == [first[key] for key in same], name
        assert given["decoder_layers"] == (1 if name == "ftc_deep" else 3)
        sampled = name in ("ftc_sampled", "ftc_all")
        assert given.get("bpe_dropout", 0.0) == (0.1 if sampled else 0.0)
        simcut = name in ("ftc_simcut", "ftc_all") or (later and name == "ftc_both_simcut")
        assert ("simcut" in given["criterion"]) == simcut


@pytest.mark.parametrize("table", ["low-resource", "multi30k"])
def test_reduced_second_stages_are_short_too(data, tmp_path, table):
    made = make(data, tmp_path, "--rows", "ftc_both", "--reduced", table=table)
    for plan in made.plans["ftc_both-seed1"]:
        assert (plan.given.max_update, plan.given.encoder_embed_dim) == (1500, 128)
        if plan.given.lr_scheduler == "polynomial_decay":
            assert plan.given.total_num_update == 1500


def test_users_settings_say_how_many_checkpoints_are_kept(data, tmp_path):
    (tmp_path / "mine.yaml").write_text("checkpoint:\n  keep_last_epochs: 20\n")
    words = ["--rows", "ftc", "--settings", tmp_path / "mine.yaml"]
    kept = ("keep_last_epochs", "keep_interval_updates")
    for more, expected in ((words[:2], [5, 5]), (words, [20, 5])):
        (plan,) = make(data, tmp_path, *more, table="low-resource").plans["ftc-seed1"]
        assert [getattr(plan.given, name) for name in kept] == expected


def test_several_processes_share_the_batch_of_a_run(data, settings, tmp_path):
    words = ["--rows", "transformer", "ftc-2x3", "--settings", settings]
    one = make(data, tmp_path / "out", *words).plans
    two = make(data, tmp_path / "out", *words, "--processes", 2).plans
    for run, (plan,) in two.items():
        given = dict(zip(plan.command, plan.command[1:]))
        assert given["--nproc_per_node"] == "2" and given["--max-tokens"] == "200"
        assert "--nproc_per_node" not in one[run][0].command
        assert plan.end == one[run][0].end and plan.threads == 1
    with pytest.raises(ConfigurationError, match="3 processes cannot share .*400"):
        make(data, tmp_path / "out", *words, "--processes", 3)


def test_the_device_and_the_precision_are_the_papers_unless_asked(data, settings, tmp_path):
    made = make(data, tmp_path, "--settings", settings, "--rows", "transformer")
    command = made.plan(made.rows[0], 1).command
    assert "--cpu" in command and not {"--bf16", "--fp16"} & set(command)
    words = ["--settings", settings, "--rows", "transformer", "--", "--bf16"]
    made = make(data, tmp_path / "half", *words)
    assert made.plan(made.rows[0], 1).command.count("--bf16") == 1
    (tmp_path / "half.yaml").write_text("common: {memory_efficient_bf16: true}")
    words = ["--settings", settings, "--settings", tmp_path / "half.yaml"]
    words += ["--rows", "transformer"]
    made = make(data, tmp_path / "from_a_file", *words)
    assert not {"--bf16", "--fp16"} & set(made.plan(made.rows[0], 1).command)
    assert "--memory-efficient-bf16" in made.plan(made.rows[0], 1).command
    words = ["--rows", "transformer", "--precision", "fp32"]
    made = make(data, tmp_path / "float32", *words, table="multi30k")
    assert "--bf16" not in made.plan(made.rows[0], 1).command
    assert made.options == "--precision fp32"


@pytest.mark.parametrize("has_bf16", [True, False])
def test_tables_for_a_cpu_train_in_bf16_where_it_is_fast(data, tmp_path, monkeypatch, has_bf16):
    monkeypatch.setattr(cpu, "has_bf16", lambda: has_bf16)
    made = make(data, tmp_path, "--rows", "ftc", table="low-resource")
    assert ("--bf16" in made.plan(made.rows[0], 1).command) == has_bf16
    assert made.options == ""
