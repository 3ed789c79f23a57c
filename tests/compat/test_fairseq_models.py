"""Every text task and model of fairseq trains, and writes, with the repairs loaded.

compat's page lists those that do not: a test compares.
"""

import re
import shutil

import pytest
from fairseq.models import MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from tests.conftest import USER_DIR, run_cli

ENCODER = (
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32"
    " --encoder-attention-heads 2"
)
DECODER = ENCODER.replace("encoder", "decoder")
BOTH = f"{ENCODER} {DECODER}"
CONVOLUTIONS = (
    "--encoder-embed-dim 8 --decoder-embed-dim 8 --decoder-out-embed-dim 8"
    " --encoder-layers [(8,3)] --decoder-layers [(8,3)]"
)
LIGHT = "--decoder-kernel-size-list [3]"
EDITS = f"--task translation_lev --criterion nat_loss --apply-bert-init {BOTH}"
MASKS = f"{EDITS} --noise full_mask --pred-length-offset --length-loss-factor 0.1"
ITERATIONS = "--task translation_lev --iter-decode-max-iter 2 --iter-decode-eos-penalty 0"
PAIRS = "--lang-pairs src-tgt,tgt-src"
LM = "--task language_modeling --tokens-per-sample 24"
LABELS = f"--num-classes 2 --max-positions 60 --arch roberta {ENCODER}"

# the data, the words of the training, the programs that use the model, and their words
WRITE, TYPED = ["generate"], ["generate", "interactive"]
CASES = {
    "transformer": ("pair", f"--arch transformer {BOTH}", TYPED, ""),
    "fconv": ("pair", f"--arch fconv {CONVOLUTIONS}", WRITE, ""),
    "fconv_self_att": (
        "pair",
        f"--arch fconv_self_att {CONVOLUTIONS} --decoder-attention True --encoder-attention False"
        " --gated-attention True --self-attention True --project-input True --pretrained False",
        WRITE,
        "",
    ),
    "lstm": (
        "pair",
        "--arch lstm --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8"
        " --decoder-embed-dim 8 --encoder-hidden-size 8 --decoder-hidden-size 8"
        " --decoder-out-embed-dim 8",
        WRITE,
        "",
    ),
    "lightconv": (
        "pair",
        f"--arch lightconv {BOTH} {LIGHT} --encoder-kernel-size-list [3]"
        " --encoder-conv-type lightweight --decoder-conv-type dynamic",
        WRITE,
        "",
    ),
    "transformer_align": (
        "pair",
        f"--arch transformer_align --alignment-layer 0 {BOTH}",
        WRITE,
        "--print-alignment hard",
    ),
    "bart": ("pair", f"--arch bart_base {BOTH}", WRITE, ""),
    "cmlm_transformer": ("pair", f"--arch cmlm_transformer {MASKS}", TYPED, ITERATIONS),
    "nonautoregressive_transformer": (
        "pair",
        f"--arch nonautoregressive_transformer --src-embedding-copy {MASKS}",
        WRITE,
        ITERATIONS,
    ),
    "iterative_nonautoregressive_transformer": (
        "pair",
        "--arch iterative_nonautoregressive_transformer --train-step 2 --dae-ratio 0.5 " + MASKS,
        WRITE,
        ITERATIONS,
    ),
    "nacrf_transformer": (
        "pair",
        "--arch nacrf_transformer --word-ins-loss-factor 0.5 --crf-lowrank-approx 4"
        f" --crf-beam-approx 4 {MASKS}",
        WRITE,
        ITERATIONS,
    ),
    "insertion_transformer": (
        "pair",
        f"--arch insertion_transformer --noise random_mask {EDITS}",
        TYPED,
        ITERATIONS,
    ),
    "levenshtein_transformer": (
        "pair",
        f"--arch levenshtein_transformer --noise random_delete {EDITS}",
        WRITE,
        ITERATIONS,
    ),
    "multilingual_translation": (
        "pair",
        f"--arch multilingual_transformer --task multilingual_translation {PAIRS} {BOTH}",
        WRITE,
        f"--task multilingual_translation {PAIRS}",
    ),
    "translation_multi_simple_epoch": (
        "pair",
        f"--arch transformer --task translation_multi_simple_epoch {PAIRS} {BOTH}",
        WRITE,
        f"--task translation_multi_simple_epoch {PAIRS}",
    ),
    "online_backtranslation": (
        "monolingual",
        "--arch transformer --task online_backtranslation --mono-langs src,tgt"
        f" --valid-lang-pairs src-tgt {BOTH}",
        WRITE,
        "--task online_backtranslation --mono-langs src,tgt --valid-lang-pairs src-tgt",
    ),
    "transformer_lm": ("text", f"--arch transformer_lm {LM} {DECODER}", ["eval_lm"], LM),
    "transformer_lm that writes": (
        "text",
        f"--arch transformer_lm {LM} {DECODER}",
        WRITE,
        f"{LM} --sample-break-mode eos --max-len-b 30",
    ),
    "fconv_lm": (
        "text",
        f"--arch fconv_lm {LM} --decoder-embed-dim 8 --decoder-layers [(8,3)]*2",
        ["eval_lm"],
        LM,
    ),
    "lightconv_lm": ("text", f"--arch lightconv_lm {LM} {DECODER} {LIGHT}", ["eval_lm"], LM),
    "lstm_lm": (
        "text",
        f"--arch lstm_lm {LM} --decoder-layers 1 --decoder-embed-dim 8 --decoder-hidden-size 8"
        " --decoder-out-embed-dim 8",
        ["eval_lm"],
        LM,
    ),
    "masked_lm": (
        "text",
        f"--arch roberta --task masked_lm --criterion masked_lm {ENCODER}",
        ["validate"],
        "--task masked_lm",
    ),
    "xmod": (
        "text",
        f"--arch xmod_base_13 --task masked_lm --criterion masked_lm {ENCODER}",
        ["validate"],
        "--task masked_lm",
    ),
    "multilingual_masked_lm": (
        "languages",
        f"--arch roberta --task multilingual_masked_lm --criterion masked_lm {ENCODER}",
        ["validate"],
        "--task multilingual_masked_lm",
    ),
    "denoising": (
        "text",
        "--arch bart_base --task denoising --mask 0.3 --mask-length subword --replace-length 1"
        f" --permute-sentences 0 {BOTH}",
        ["validate"],
        "--task denoising",
    ),
    "multilingual_denoising": (
        "languages",
        "--arch bart_base --task multilingual_denoising --mask 0.3 --mask-length subword"
        f" --replace-length 1 {BOTH}",
        ["validate"],
        "--task multilingual_denoising",
    ),
    "span_masked_lm": (
        "text",
        f"--arch bart_base --task span_masked_lm {BOTH}",
        ["validate"],
        "--task span_masked_lm",
    ),
    "dummy_lm": (
        None,
        "--arch transformer_lm --task dummy_lm --tokens-per-sample 8 --dict-size 50"
        f" --dataset-size 40 {DECODER}",
        [],
        "",
    ),
    "dummy_masked_lm": (
        None,
        "--arch roberta --task dummy_masked_lm --criterion masked_lm --tokens-per-sample 8"
        f" --dict-size 50 --dataset-size 40 {ENCODER}",
        [],
        "",
    ),
    "dummy_mt": (
        None,
        f"--arch transformer --task dummy_mt --dict-size 50 --dataset-size 40 {BOTH}",
        [],
        "",
    ),
    "sentence_prediction": (
        "labelled",
        f"--task sentence_prediction --criterion sentence_prediction {LABELS}",
        ["validate"],
        "--task sentence_prediction --criterion sentence_prediction --num-classes 2",
    ),
    "sentence_prediction_adapters": (
        "labelled",
        "--task sentence_prediction_adapters --criterion sentence_prediction "
        + LABELS.replace("roberta", "xmod_base_13"),
        ["validate"],
        "--task sentence_prediction_adapters --criterion sentence_prediction --num-classes 2",
    ),
    "sentence_ranking": (
        "labelled",
        f"--task sentence_ranking --criterion sentence_ranking {LABELS}",
        ["validate"],
        "--task sentence_ranking --criterion sentence_ranking --num-classes 2",
    ),
}
TRAINING = (
    "--optimizer adam --lr 0.001 --max-update 3 --batch-size 6 --no-epoch-checkpoints --cpu"
    " --disable-validation --required-batch-size-multiple 1"
).split()
LINES = 4
NEED_LIBNAT = ("insertion_transformer", "levenshtein_transformer")


@pytest.fixture(scope="module")
def data(tmp_path_factory, make_toy_data, run_preprocess):
    """A folder with each kind of data that `CASES` names."""
    folder = tmp_path_factory.mktemp("text_tasks")
    toy = make_toy_data(folder / "toy", {"train": 24, "valid": 6, "test": LINES}, joined=True)
    dictionary = toy.bin / "dict.src.txt"
    for split, size in toy.sizes.items():  # labels in turn
        labels = "".join(f"{number % 2}\n" for number in range(size))
        (folder / f"{split}.label").write_text(labels)
        (folder / "labelled").mkdir(exist_ok=True)
        shutil.copy(folder / f"{split}.label", folder / "labelled")
    words = [word for s in toy.sizes for word in (f"--{s}pref", folder / f"{s}.label")]
    run_preprocess("--only-source", *words, "--destdir", folder / "labelled" / "label")
    for path in toy.bin.glob("*.src-tgt.*"):
        split, _, language, end = path.name.split(".")
        for place in (
            f"pair/{path.name}",
            f"monolingual/{path.name}",
            f"monolingual/{language}/{split}.{end}",  # online_backtranslation
            f"languages/{language}/{split}.{end}",
            f"languages/{split}.{language}.{end}",  # where its dictionary goes
            *([f"text/{split}.{end}"] if language == "src" else []),
            *([f"labelled/input{n}/{split}.{end}" for n in range(3)] if language == "src" else []),
        ):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / place)
    for place in {path.parent for path in folder.glob("[plmt]*/**/*.idx")}:
        for name in ("dict.txt", "dict.src.txt", "dict.tgt.txt"):
            if place.name != "label" and folder / "toy" not in place.parents:
                shutil.copy(dictionary, place / name)
    return folder


@pytest.fixture(scope="module")
def trained(data):
    """trained(name) -> the checkpoint of a case after three updates."""
    done = {}

    def train(name):
        if name not in done:
            kind, words, _, _ = CASES[name]
            folder = data / "runs" / name.replace(" ", "_")
            place = [] if kind is None else [data / kind]
            run_cli("train", *place, *words.split(), *TRAINING, "--save-dir", folder)
            done[name] = folder / "checkpoint_last.pt"
        return done[name]

    return train


@pytest.mark.parametrize("name", CASES)
def test_it_trains_and_writes(name, data, trained):
    kind, _, programs, words = CASES[name]
    if name in NEED_LIBNAT:
        pytest.importorskip("fairseq.libnat")  # compiled
    checkpoint = trained(name)
    assert checkpoint.is_file()
    text = (data / "toy" / "raw" / "test.src").read_text()
    for program in programs:
        command = [data / kind, "--path", checkpoint, *words.split(), "--cpu", "--batch-size", 4]
        if program in TYPED:
            command += ["--beam", 2, *([] if "--max-len-b" in words else ["--max-len-b", 9])]
            pair = kind == "pair"
            command += ["--source-lang", "src", "--target-lang", "tgt"] if pair else []
        if program == "validate":
            command += ["--valid-subset", "valid"]
        more = ["--buffer-size", LINES] if program == "interactive" else []
        output = run_cli(program, *command, *more, stdin=text).output
        if program in TYPED:
            numbers = re.findall(r"^H-(\d+)\t", output, re.MULTILINE)
            assert sorted(map(int, numbers)) == list(range(LINES))
        else:
            assert re.search(r"Perplexity: \d|\| loss \d", output)


def test_what_is_not_tried_is_on_the_page():
    """Those of text; a new one is tried or listed."""
    of_text = {
        name
        for name, kind in {**TASK_REGISTRY, **MODEL_REGISTRY}.items()
        if not re.search("fairseq_plugins|speech|audio|wav2vec|hubert|nlu|ulm", kind.__module__)
    }
    tried = " ".join(words for _, words, _, _ in CASES.values())
    page = (USER_DIR / "compat" / "README.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Text tasks and models\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    known = {*CASES, *re.findall(r"--(?:task|arch) (\w+)", tried), "translation"}
    assert of_text - known - set(re.findall(r"`(\w+)`", section)) == set()
