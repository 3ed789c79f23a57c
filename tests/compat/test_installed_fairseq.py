"""What the installed fairseq runs or looks up by a stored text is covered by compat, or reviewed.

These tests search fairseq's source. They fail when a release brings a call that nobody has looked
at: cover it in fairseq_plugins/compat, or add it below with the reason why a checkpoint cannot
reach it. The lists name files and functions, not lines. fairseq/examples is left out: fairseq
imports nothing from there by itself.
"""

import argparse
import ast
import dataclasses
import re
import sys
from pathlib import Path

import fairseq
import pytest
from fairseq import models, tasks
from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES
from omegaconf import OmegaConf

from fairseq_plugins import compat
from fairseq_plugins.compat.literals import read_literal
from fairseq_plugins.compat.stored_options import EVALUATED, FILES, FILES_IN_DATA

compat.apply()

ROOT = Path(fairseq.__file__).parent.parent

COMMAND_LINE = "evaluates --model-overrides, which the user gives"
PACKAGE = "imports the files of fairseq's own folder at start-up"
DATA = "opens files of the prepared folder; numpy reads no pickle there by default"
NAMED = "opens a file that stored_options.FILES clears, so the user named it"
OTHER_PROCESS = "unpickles what another process of the same training sent"
ENUM = "looks up a member of an enum"
PLASMA = "starts plasma_store without a shell, with --use-plasma-view of the command line"

# (file, function): reason
REVIEWED = {
    ("fairseq/__init__.py", ""): "names modules of fairseq by text written there",
    ("fairseq/checkpoint_utils.py", "load_checkpoint_to_cpu"): "is read_checkpoint here",
    ("fairseq/checkpoint_utils.py", "load_ema_from_checkpoint"): "is read_checkpoint here",
    ("fairseq/criterions/__init__.py", ""): PACKAGE,
    ("fairseq/data/audio/__init__.py", "import_transforms"): PACKAGE,
    ("fairseq/data/audio/audio_utils.py", "get_features_from_npy_or_audio"): DATA,
    ("fairseq/data/audio/audio_utils.py", "get_features_or_waveform_from_stored_zip"): DATA,
    ("fairseq/data/audio/data_cfg.py", "get_config_from_yaml"): DATA,
    ("fairseq/data/audio/feature_transforms/__init__.py", ""): PACKAGE,
    ("fairseq/data/audio/feature_transforms/global_cmvn.py", "GlobalCMVN.__init__"): DATA,
    ("fairseq/data/codedataset.py", "CodeDataset.__init__"): DATA,
    ("fairseq/data/codedataset.py", "CodeDataset.get_data_handlers"): DATA,
    ("fairseq/data/encoders/__init__.py", ""): PACKAGE,
    ("fairseq/data/encoders/byte_bpe.py", "ByteBPE.__init__"): NAMED,
    ("fairseq/data/encoders/fastbpe.py", "fastBPE.__init__"): NAMED,
    ("fairseq/data/encoders/gpt2_bpe.py", "GPT2BPE.__init__"): NAMED,
    ("fairseq/data/encoders/hf_byte_bpe.py", "HuggingFaceByteLevelBPE.__init__"): NAMED,
    ("fairseq/data/encoders/sentencepiece_bpe.py", "SentencepieceBPE.__init__"): NAMED,
    ("fairseq/data/encoders/subword_nmt_bpe.py", "SubwordNMTBPE.__init__"): NAMED,
    ("fairseq/data/fasta_dataset.py", "FastaDataset.__init__"): DATA,
    ("fairseq/data/fasta_dataset.py", "FastaDataset._build_index"): (
        "runs a shell with the path of a file in the prepared folder, which must exist"
    ),
    ("fairseq/data/plasma_utils.py", "PlasmaArray.start_server"): PLASMA,
    ("fairseq/data/plasma_utils.py", "PlasmaStore.start"): PLASMA,
    ("fairseq/distributed/utils.py", "_broadcast_object_slow"): OTHER_PROCESS,
    ("fairseq/distributed/utils.py", "_infer_slurm_init"): "runs scontrol for Slurm's variables",
    ("fairseq/distributed/utils.py", "all_gather_list"): OTHER_PROCESS,
    ("fairseq/file_utils.py", "load_archive_file"): "opens what the call names",
    ("fairseq/hub_utils.py", "from_pretrained"): "opens what the call names",
    ("fairseq/logging/meters.py", "MetersDict.load_state_dict"): (
        "calls a name of that module without arguments: its meters, and nothing that acts"
    ),
    ("fairseq/model_parallel/criterions/__init__.py", ""): PACKAGE,
    ("fairseq/model_parallel/models/__init__.py", ""): PACKAGE,
    ("fairseq/models/__init__.py", "import_models"): PACKAGE,
    ("fairseq/models/ema/__init__.py", ""): PACKAGE,
    ("fairseq/models/huggingface/__init__.py", ""): PACKAGE,
    ("fairseq/models/speech_to_text/hub_interface.py", "S2THubInterface.get_prediction"): (
        "loads a speech model from the hub that the call asks for"
    ),
    ("fairseq/models/speech_to_text/xm_transformer.py", "XMTransformerModel.build_model"): NAMED,
    ("fairseq/models/text_to_speech/vocoder.py", "GriffinLimVocoder.from_data_cfg"): (
        "looks up a window function of torch named in the prepared folder"
    ),
    ("fairseq/models/text_to_speech/vocoder.py", "HiFiGANVocoder.__init__"): DATA,
    ("fairseq/models/text_to_speech/vocoder.py", "CodeHiFiGANVocoder.__init__"): DATA,
    ("fairseq/modules/quantization/pq/em.py", "EM.load"): "no program of fairseq calls it",
    ("fairseq/modules/quantization/scalar/ops.py", "emulate_int"): (
        "completes emulate_int8_ to a function of that module"
    ),
    ("fairseq/optim/__init__.py", ""): PACKAGE,
    ("fairseq/optim/fused_adam.py", "FusedAdamV1.__init__"): "imports apex's module",
    ("fairseq/optim/fused_adam.py", "get_fused_adam_class"): "imports apex's module",
    ("fairseq/optim/lr_scheduler/__init__.py", ""): PACKAGE,
    ("fairseq/scoring/__init__.py", ""): PACKAGE,
    ("fairseq/speech_generator.py", "SpeechGenerator.__init__"): DATA,
    ("fairseq/tasks/__init__.py", "import_tasks"): PACKAGE,
    ("fairseq/tasks/audio_classification.py", "AudioClassificationTask.load_dataset"): ENUM,
    ("fairseq/tasks/audio_finetuning.py", "AudioFinetuningTask.load_dataset"): ENUM,
    ("fairseq/tasks/audio_pretraining.py", "AudioPretrainingTask.load_dataset"): ENUM,
    ("fairseq/tasks/audio_pretraining.py", "AudioPretrainingTask.post_save"): NAMED,
    ("fairseq/tasks/nlu_finetuning.py", "NLUFinetuningTask.load_dataset"): ENUM,
    ("fairseq/tasks/text_to_speech.py", "TextToSpeechTask.get_speaker_embeddings"): DATA,
    ("fairseq/utils.py", "import_user_module"): NAMED,
    ("fairseq_cli/eval_lm.py", "main"): COMMAND_LINE,
    ("fairseq_cli/validate.py", "main"): COMMAND_LINE,
}

RUNS = re.compile(
    r"(eval|exec|compile|__import__|importlib\.import_module|runpy\.\w+|os\.(system|popen|exec\w+)"
    r"|subprocess\.\w+|c?[pP]ickle\.loads?|dill\.loads?|torch(\.hub|\.jit)?\.load|np\.load"
    r"|joblib\.load|yaml\.(unsafe_|full_)?load(_all)?|(.*\.)?(instantiate|locate|get_class|get_method"
    r"|cached_path|load_archive_file))"
)
NAMESPACE = re.compile(r"(globals|locals|vars)\(\)|sys\.modules")


@pytest.fixture(scope="module")
def trees():
    """{file: syntax tree} of fairseq, without files in which no word below occurs."""
    words = re.compile(
        r"eval|exec|compile|import_|runpy|system|popen|subprocess|loads?\(|load_all|instantiate"
        r"|locate|get_class|get_method|cached_path|archive|globals|locals|vars|modules\["
        r"|getattr\([^\"']*,\s*[^\"'\s]"
    )
    found = {}
    for path in [*ROOT.glob("fairseq/**/*.py"), *ROOT.glob("fairseq_cli/**/*.py")]:
        source = path.read_text(encoding="utf-8")
        if "examples" not in path.relative_to(ROOT).parts and words.search(source):
            found[path.relative_to(ROOT).as_posix()] = ast.parse(source)
    return found


def dotted(node):
    """`a.b.c` and `a.b()` as text; "" for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return dotted(node.value) + "." + node.attr
    return dotted(node.func) + "()" if isinstance(node, ast.Call) else ""


def risks(tree):
    """(function, what is called or looked up) for all that runs or looks up a text."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }

    def risk(node):
        if isinstance(node, ast.Subscript):
            name = dotted(node.value)
            return name if NAMESPACE.fullmatch(name) else None
        if not isinstance(node, ast.Call):
            return None
        name = dotted(node.func)
        if RUNS.fullmatch(name):
            return name
        if name in ("globals().get", "locals().get", "vars().get", "sys.modules.get"):
            return name
        if name == "getattr" and not isinstance(node.args[1], ast.Constant):
            owner = dotted(node.args[0])  # a module or a class
            return name if owner in imported or owner[:1].isupper() else None
        return None

    def visit(node, scope):
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef))
            inner = scope + [child.name] if named else scope
            if risk(child):
                found.add((".".join(inner), risk(child)))
            visit(child, inner)

    found = set()
    visit(tree, [])
    return sorted(found)


def reads_literals(file):
    """Whether `eval` means `read_literal` in this file of fairseq."""
    module = sys.modules.get(file[: -len(".py")].replace("/__init__", "").replace("/", "."))
    return getattr(module, "eval", None) is read_literal


def uncovered(found):
    return [
        (file, function, risk)
        for file, function, risk in found
        if not (risk == "eval" and reads_literals(file)) and (file, function) not in REVIEWED
    ]


def test_all_that_fairseq_runs_or_looks_up_is_covered_or_reviewed(trees):
    found = [(file, *risk) for file, tree in trees.items() for risk in risks(tree)]
    assert sum(risk == "eval" for _, _, risk in found) >= 20
    assert uncovered(found) == []


@pytest.mark.parametrize(
    "code, risk",
    [
        ("def f(x):\n    return eval(x)", ("f", "eval")),
        ("class A:\n    def f(self, x):\n        exec(x)", ("A.f", "exec")),
        ("def f(n):\n    return globals()[n]()", ("f", "globals()")),
        ("def f(n):\n    return globals().get(n)", ("f", "globals().get")),
        ("import torch\ndef f(n):\n    return getattr(torch, n)()", ("f", "getattr")),
        ("def f(cfg):\n    return hydra.utils.instantiate(cfg)", ("f", "hydra.utils.instantiate")),
        ("def f(n):\n    return importlib.import_module(n)", ("f", "importlib.import_module")),
        ("def f(c):\n    os.system(c)", ("f", "os.system")),
        ("def f(p):\n    return torch.load(p)", ("f", "torch.load")),
    ],
)
def test_a_new_release_that_runs_or_looks_up_a_text_is_noticed(code, risk):
    assert risks(ast.parse(code)) == [risk]
    assert uncovered([("fairseq/models/new.py", *risk)]) == [("fairseq/models/new.py", *risk)]


def test_what_is_no_look_up_is_left_alone():
    code = "import re\nmodel.eval()\nre.compile('a')\ngetattr(args, name)"
    assert risks(ast.parse(code)) == []


# What is given to these is evaluated. Not by a name in the options:
EVALUATED_OTHERWISE = {
    ("fairseq/criterions/ctc.py", "wer_args"): "cleared by stored_options.FILES",
    ("fairseq_cli/eval_lm.py", "model_overrides"): COMMAND_LINE,
}


def test_every_option_that_fairseq_evaluates_must_be_a_literal(trees):
    evaluators = r"(eval|(utils\.|options\.)?eval_(str_list|str_dict|bool))"
    found = set()
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and node.args):
                continue
            option = node.args[0]
            if re.fullmatch(evaluators, dotted(node.func)) and isinstance(option, ast.Attribute):
                found.add((file, option.attr))
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


def test_options_in_the_command_line_form_are_read_as_before():
    from fairseq import utils

    assert utils.eval_str_list("0.25,5e-4") == [0.25, 5e-4]
    assert utils.eval_str_list("[4000, 20000]", type=int) == [4000, 20000]
    assert utils.eval_bool("True") is True and utils.eval_bool(None, default=True) is True
    assert utils.eval_bool(argparse.Namespace(), default=False) is False
    assert utils.eval_str_dict("{'name': 'scaled_dot_product'}") == {"name": "scaled_dot_product"}
