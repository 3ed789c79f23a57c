"""What the installed fairseq evaluates or opens by a stored option is covered by compat.

These tests search fairseq's source, so that they fail when another release has more of it.
"""

import ast
import dataclasses
import re
import sys
from pathlib import Path

import fairseq
from fairseq import models, tasks
from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES
from omegaconf import OmegaConf

from fairseq_plugins import compat
from fairseq_plugins.compat.literals import read_literal
from fairseq_plugins.compat.stored_options import EVALUATED, FILES, FILES_IN_DATA

compat.apply()

ROOT = Path(fairseq.__file__).parent.parent


def calls(evaluators):
    """(file, call with an argument) of all functions whose dotted name matches, in all files."""
    for path in [*ROOT.glob("fairseq/**/*.py"), *ROOT.glob("fairseq_cli/**/*.py")]:
        source = path.read_text(encoding="utf-8")
        if "eval" in source and "examples" not in path.relative_to(ROOT).parts:
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and node.args:
                    if re.fullmatch(evaluators, ast.unparse(node.func)):
                        yield path.relative_to(ROOT).as_posix(), node


def test_eval_means_read_literal_wherever_fairseq_calls_it():
    files = [file for file, _ in calls("eval")]
    # these two evaluate --model-overrides, which the user gives
    files = [
        file for file in files if file not in ("fairseq_cli/eval_lm.py", "fairseq_cli/validate.py")
    ]
    assert len(files) >= 20
    for file in files:
        module = sys.modules.get(file[: -len(".py")].replace("/__init__", "").replace("/", "."))
        assert getattr(module, "eval", None) is read_literal, file


# What is given to these is evaluated. Not by a name in the options:
EVALUATED_OTHERWISE = {
    ("fairseq/criterions/ctc.py", "wer_args"): "cleared by stored_options.FILES",
    ("fairseq_cli/eval_lm.py", "model_overrides"): "which the user gives",
}


def test_every_option_that_fairseq_evaluates_must_be_a_literal():
    found = {
        (file, node.args[0].attr)
        for file, node in calls(r"eval|(utils\.|options\.)?eval_(str_list|str_dict|bool)")
        if isinstance(node.args[0], ast.Attribute)
    }
    assert {option for _, option in found} >= {"adam_betas", "adaptive_softmax_cutoff"}
    missing = {(file, option) for file, option in found if option not in EVALUATED}
    assert missing - set(EVALUATED_OTHERWISE) == set()


def options_of_fairseq():
    """{option: where it is declared}, of all that is no number and no flag."""
    declared = {}

    class Parser:
        def add_argument(self, *flags, dest=None, type=None, action=None, **rest):
            if action not in ("store_true", "store_false") and type not in (int, float):
                name = dest or max(flags, key=len).lstrip("-").replace("-", "_")
                declared.setdefault(name, owner)

        def add_argument_group(self, *args, **kwargs):
            return self

        add_mutually_exclusive_group = add_argument_group

        def set_defaults(self, **kwargs):
            pass

    def add_fields(dataclass):
        for field in dataclasses.fields(dataclass):
            if field.type not in (int, float, bool):
                declared.setdefault(field.name, owner)
            if dataclasses.is_dataclass(field.type):
                add_fields(field.type)

    registries = {"task": tasks.TASK_REGISTRY, "model": models.MODEL_REGISTRY}
    registries.update({name: parts["registry"] for name, parts in REGISTRIES.items()})
    for kind, registry in registries.items():
        for name, part in registry.items():
            if not part.__module__.startswith("fairseq."):
                continue
            owner = kind + " " + name
            if hasattr(part, "add_args"):
                part.add_args(Parser())
            if getattr(part, "__dataclass", None) is not None:
                add_fields(getattr(part, "__dataclass"))  # noqa: B009  (no name mangling)
    owner = "fairseq"
    add_fields(FairseqConfig)
    return declared


FILE = re.compile(
    r"(.*_)?(path|paths|dir|logdir|file|files|filename|from|codes|merges|vocab|json|yaml|model|ckpt"
    r"|checkpoint|script|predictions|lexicon|dict|dictionary|weights_from_file|root|manifest)"
)
# sections and flags, and options that only count on the command line itself
NO_FILE = {
    "checkpoint", "ema_seed_model", "finetune_from_model", "log_file", "model", "path",
    "pipeline_checkpoint", "plasma_path", "quantization_config_path", "restore_file",
    "results_path", "save_dir",
}  # fmt: skip


def test_every_option_that_names_a_file_is_cleared_or_reviewed():
    declared = options_of_fairseq()
    assert {"encoder_embed_path", "bpe_codes", "user_dir"} <= set(declared)
    files = {name: owner for name, owner in declared.items() if FILE.fullmatch(name)}
    known = set(FILES) | FILES_IN_DATA | NO_FILE
    assert {name: owner for name, owner in files.items() if name not in known} == {}


def test_the_dataclasses_of_fairseq_accept_what_files_are_replaced_by():
    seen = set()
    for parts in [*REGISTRIES.values(), {"dataclass_registry": tasks.TASK_DATACLASS_REGISTRY},
                  {"dataclass_registry": models.MODEL_DATACLASS_REGISTRY}]:  # fmt: skip
        for dataclass in parts["dataclass_registry"].values():
            names = {field.name for field in dataclasses.fields(dataclass)} & set(FILES)
            if names:
                OmegaConf.merge(dataclass(), {name: FILES[name] for name in names})
                seen |= names
    assert {"bpe_codes", "label_dir", "w2v_path"} <= seen
