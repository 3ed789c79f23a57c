"""The recipes: what each resolves to, by the command line and by hydra, and bad files."""

import itertools
from argparse import ArgumentParser

import pytest
import yaml
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options import fairseq_parser, recipes
from tests.conftest import ROOT

NAMES = [
    name
    for name in recipes.names()
    if name != "quickstart" and recipes.find(name).parent.name != "classification"
]


def task_of(name):
    return recipes.find(name).parent.name


def composed(name, data):
    """The configuration that fairseq-hydra-train hands to the training."""
    from fairseq.dataclass.initialize import add_defaults, hydra_init
    from hydra.core.global_hydra import GlobalHydra

    try:
        from hydra import compose, initialize_config_dir
    except ImportError:  # before 1.1
        from hydra.experimental import compose, initialize_config_dir

    GlobalHydra.instance().clear()
    hydra_init(name)
    overrides = [f"task.data={data}", "checkpoint.save_dir=saved"]
    with initialize_config_dir(config_dir=str(recipes.find(name).parent)):
        cfg = compose(config_name=name, overrides=overrides)
    add_defaults(cfg)
    return OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)


# one of each form: hydra takes seconds for each
@pytest.mark.parametrize(
    "name",
    "transformer_ftc ftc_rdrop fastformer_copy_cnn_dm imdb".split(),
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_hydra_reads_the_same_from_a_recipe(name):
    args = fairseq_parser.parse(
        ["DATA", *recipes.arguments([recipes.find(name)]), "--save-dir", "saved"]
    )
    expected = OmegaConf.to_container(
        convert_namespace_to_omegaconf(args), resolve=True, enum_to_str=True
    )
    found = composed(name, "DATA")

    groups = ["common", "task", "optimizer", "lr_scheduler", "dataset", "optimization"]
    for group in [*groups, "checkpoint", "criterion"]:
        known = set(found[group]) & set(expected[group]) - {"seed", "no_seed_provided"}
        assert len(known) > (0 if group == "criterion" else 2)
        for option in known - {"no_progress_bar"}:
            assert found[group][option] == expected[group][option], (group, option)

    # the model's options, once the architecture has filled in the rest, as build_model does
    model = OmegaConf.create(found["model"])
    ARCH_CONFIG_REGISTRY[found["model"]["_name"]](model)
    for option, setting in OmegaConf.to_container(model).items():
        if option != "_name":
            assert getattr(args, option) == setting, option
    assert found["model"]["_name"] == args.arch


def test_every_recipe_has_its_launcher_and_is_in_the_page_of_its_task():
    for name in NAMES:
        folder = ROOT / "examples" / task_of(name)
        path = folder / f"{name}.sh"
        assert path.is_file(), f"recipe {name} needs a launcher, {path}: copy another one"
        launcher = path.read_text(encoding="utf-8")
        assert launcher.endswith(f'/scripts/plugin.sh" train {name} "$@"\n')
        assert f"recipes/{task_of(name)}/{name}.yaml" in launcher
        assert f"`{name}`" in (folder / "README.md").read_text(encoding="utf-8")


def test_recipes_have_a_model_and_settings_have_none():
    for path in recipes.FOLDER.rglob("*.yaml"):
        has_model = "arch" in recipes.read(path)
        assert has_model == (path.parent.name != recipes.SETTINGS), path
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert (first == "# @package _global_") != has_model, path  # hydra needs it in settings


# --- files ----------------------------------------------------------------------------------------


def test_words_of_options():
    options = {"arch": "a", "bf16": True, "cpu": False, "lr": [1e-3, "5e-4"], "x": None}
    options["adam_betas"] = "(0.9, 0.98)"
    assert recipes.words(options) == [
        "--arch", "a", "--bf16", "--lr", "0.001,5e-4", "--adam-betas", "(0.9, 0.98)"
    ]  # fmt: skip


def test_an_option_that_is_on_by_default():
    """Its flag turns it off on the command line, while hydra reads its value."""
    fields = TranslationConfig.__dataclass_fields__.values()
    assert {field.name for field in fields if field.default is True} == recipes.ON_BY_DEFAULT
    for value in (True, False):
        words = recipes.words({"arch": "transformer", "task": "translation", "lr": [1.0]})
        words += recipes.words({"left_pad_source": value})
        assert fairseq_parser.parse(["DATA", *words]).left_pad_source is value


def test_later_settings_win_and_false_removes_a_flag(tmp_path):
    (tmp_path / "a.yaml").write_text("common: {bf16: true}\noptimization: {lr: [1.0]}\n")
    (tmp_path / "b.yaml").write_text("common: {bf16: false}\noptimization: {clip_norm: 2}\n")
    (tmp_path / "c.args").write_text("# a comment\n--bf16 --lr=2 # here too\n--max-epoch -1\n")
    a, b, c = (tmp_path / name for name in ("a.yaml", "b.yaml", "c.args"))
    assert recipes.arguments([a, b]) == ["--lr", "1.0", "--clip-norm", "2"]
    words = ["--bf16", "--lr=2", "--clip-norm", "2", "--max-epoch", "-1"]
    assert recipes.arguments([a, b, c]) == words
    assert recipes.arguments([c, b]) == ["--lr=2", "--max-epoch", "-1", "--clip-norm", "2"]
    found = recipes.arguments([c, a, b])
    assert found == ["--lr", "1.0", "--max-epoch", "-1", "--clip-norm", "2"]


def test_every_second_name_of_an_option_is_known():
    """Else a later file could not replace an option that has two names."""
    parsers = [options.get_training_parser(), options.get_generation_parser(), ArgumentParser()]
    TASK_REGISTRY["translation"].add_args(parsers[2])
    others = {
        name.lstrip("-").replace("-", "_"): action.dest
        for parser in parsers
        for action in parser._actions
        for name in action.option_strings
        if action.dest != "help" and name.lstrip("-").replace("-", "_") != action.dest
    }
    assert {"max_sentences", "a", "s", "t", "remove_bpe"} <= set(others)
    assert {name: recipes.ALIASES.get(name) for name in others} == others


def test_options_by_name_whatever_they_are_called(tmp_path):
    (tmp_path / "a.args").write_text("-a transformer -s de --adam-betas '(0.9, 0.98)' --save-async")
    with open(tmp_path / "a.args", "a") as file:
        file.write(" --max-sentences 8 --lr 1 --lr 2 --optimizer adam")
    (tmp_path / "b.yaml").write_text(
        "model: {_name: transformer_ftc}\ntask: {source_lang: en}\n"
        "dataset: {batch_size: null}\ncheckpoint: {write_checkpoints_asynchronously: false}"
    )
    found = recipes.arguments([tmp_path / "a.args", tmp_path / "b.yaml"])
    assert found == [
        *("--arch", "transformer_ftc", "--source-lang", "en"),
        *("--adam-betas", "(0.9, 0.98)", "--lr", "2", "--optimizer", "adam"),
    ]
    read = fairseq_parser.parse(["DATA", *found])
    assert (read.arch, read.source_lang, read.batch_size) == ("transformer_ftc", "en", None)
    (tmp_path / "c.args").write_text("DATA --lr 1")
    with pytest.raises(ConfigurationError, match="fairseq-train does not take DATA"):
        fairseq_parser.parse(
            ["data", "--arch", "transformer", *recipes.arguments([tmp_path / "c.args"])]
        )


def nested(collection):
    """YAML of nine aliases to nine aliases, and so on."""
    names = "abcdefghi"
    lines = [
        f"  {name}: &{name} " + collection.format(",".join(["*" + inner] * 9))
        for inner, name in itertools.pairwise(names)
    ]
    return "\n".join(["common:", "  a: &a {x: 1}", *lines])


@pytest.mark.parametrize(
    "text, message",
    [
        ("--lr '1", "--settings .*some.args cannot be read: .*: give a .yaml"),
        ("a: [1", " cannot be read"),
        ("- 1", ": give groups of options"),
        ("lr: 5e-4", ": lr is not a group of options"),
        ("defaults: [nothing]", ": its default 'nothing' is neither .*nothing.yaml nor a recipe"),
        ("defaults: [other]\noptimization: {max_epoch: 15}", ": optimization.max_epoch is 15 here"),
        ("a: {b: 2001-99-99}", " cannot be read: month must be"),
        ("a: {b: !!bool c}", " cannot be read"),
        ("a: {b: !!timestamp c}", " cannot be read"),
        (f"a: {{b: {'9' * 5000}}}", " cannot be read: .*digits"),
        (f"a: {{b: 0x{'9' * 5000}}}", ": a.b is neither text, a number of"),
        ("[" * 3000, " cannot be read"),
        ("a: {b: [[1]]}", ": a.b is neither text, a number of"),
        ("a: {b: &b [*b]}", ": a.b is neither text, a number of"),
        (nested("[{}]"), ".*more than 100,000 characters, aliases included"),
        (nested("{{<<: [{}]}}"), ".*more than 100,000 characters, aliases included"),
        (f"defaults: [{'a' * 5000}]", ": its default 'a+' is neither"),
        ("defaults: [circle]", " is among its own defaults: remove it"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    (tmp_path / "other.yaml").write_text(yaml.safe_dump({"optimization": {"max_epoch": 12}}))
    (tmp_path / "circle.yaml").write_text("defaults: [some]")
    file = tmp_path / ("some.args" if text.startswith("--") else "some.yaml")
    file.write_text(text)
    told = message if file.suffix == ".args" else f"some.yaml{message}"
    with pytest.raises(ConfigurationError, match=told) as error:
        recipes.arguments([file])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["transformer_ftc", "fastformer_cnn_dm", "imdb"])
def test_a_copy_of_a_recipe_is_the_same_anywhere(tmp_path, name):
    """Also its settings, of which several tasks have some of one name."""
    copy = tmp_path / "mine.yaml"
    copy.write_text(recipes.find(name).read_text())
    assert recipes.read(copy) == recipes.read(recipes.find(name))
    folder = recipes.find(name).parent
    assert recipes.find("reduced_cpu", recipes.folders(copy)).parent.parent == folder
    (tmp_path / "reduced_cpu.yaml").write_text("optimization: {max_update: 7}\n")
    assert recipes.find("reduced_cpu", recipes.folders(copy)).parent == tmp_path
    copy.write_text(copy.read_text().replace("_name: translation", "_name: translation_sampled"))
    (tmp_path / "reduced_cpu.yaml").unlink()
    assert recipes.find("reduced_cpu", recipes.folders(copy)).parent.parent == folder
