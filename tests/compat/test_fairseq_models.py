"""Every text task and model of fairseq trains, and writes, with the repairs loaded.

compat's page lists those that do not.
"""

import re
import shutil

import pytest

from tests.conftest import run_cli

ENCODER = (
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32"
    " --encoder-attention-heads 2"
)
DECODER = ENCODER.replace("encoder", "decoder")
BOTH = f"{ENCODER} {DECODER}"
SHORT = {  # words that stand for many
    "ENCODER": ENCODER,
    "DECODER": DECODER,
    "BOTH": BOTH,
    "CONVOLUTIONS": "--encoder-embed-dim 8 --decoder-embed-dim 8 --decoder-out-embed-dim 8"
    " --encoder-layers [(8,3)] --decoder-layers [(8,3)]",
    "LIGHT": "--decoder-kernel-size-list [3]",
    "EDITS": f"--task translation_lev --criterion nat_loss --apply-bert-init {BOTH}",
    "MASKS": f"--task translation_lev --criterion nat_loss --apply-bert-init {BOTH}"
    " --noise full_mask --pred-length-offset --length-loss-factor 0.1",
    "PAIRS": "--lang-pairs src-tgt,tgt-src",
    "LM": "--task language_modeling --tokens-per-sample 24",
    "SUBWORD": "--mask 0.3 --mask-length subword --replace-length 1",
    "LABELS": f"--num-classes 2 --max-positions 60 {ENCODER}",
    "DUMMY": "--dict-size 50 --dataset-size 40",
}
# the data, the program that uses the model, and the words of the training
CASES = (
    """
pair         generate    --arch transformer BOTH
pair         interactive --arch transformer BOTH
pair         generate    --arch fconv CONVOLUTIONS
pair         generate    --arch fconv_self_att CONVOLUTIONS --decoder-attention True \
 --encoder-attention False --gated-attention True --self-attention True --project-input True \
 --pretrained False
pair         generate    --arch lstm --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 \
 --decoder-embed-dim 8 --encoder-hidden-size 8 --decoder-hidden-size 8 --decoder-out-embed-dim 8
pair         generate    --arch lightconv BOTH LIGHT --encoder-kernel-size-list [3] \
 --encoder-conv-type lightweight --decoder-conv-type dynamic
pair         generate    --arch transformer_align --alignment-layer 0 BOTH
pair         generate    --arch bart_base BOTH
pair         interactive --arch cmlm_transformer MASKS
pair         generate    --arch nonautoregressive_transformer --src-embedding-copy MASKS
pair         generate    --arch iterative_nonautoregressive_transformer --train-step 2 \
 --dae-ratio 0.5 MASKS
pair         generate    --arch nacrf_transformer --word-ins-loss-factor 0.5 \
 --crf-lowrank-approx 4 --crf-beam-approx 4 MASKS
pair         interactive --arch insertion_transformer --noise random_mask EDITS
pair         generate    --arch levenshtein_transformer --noise random_delete EDITS
pair         generate    --arch multilingual_transformer --task multilingual_translation PAIRS BOTH
pair         generate    --arch transformer --task translation_multi_simple_epoch PAIRS BOTH
monolingual  generate    --arch transformer --task online_backtranslation --mono-langs src,tgt \
 --valid-lang-pairs src-tgt BOTH
text         eval_lm     --arch transformer_lm LM DECODER
text         generate    --arch transformer_lm LM DECODER
text         eval_lm     --arch fconv_lm LM --decoder-embed-dim 8 --decoder-layers [(8,3)]*2
text         eval_lm     --arch lightconv_lm LM DECODER LIGHT
text         eval_lm     --arch lstm_lm LM --decoder-layers 1 --decoder-embed-dim 8 \
 --decoder-hidden-size 8 --decoder-out-embed-dim 8
text         validate    --arch roberta --task masked_lm --criterion masked_lm ENCODER
text         validate    --arch xmod_base_13 --task masked_lm --criterion masked_lm ENCODER
languages    validate    --arch roberta --task multilingual_masked_lm --criterion masked_lm ENCODER
text         validate    --arch bart_base --task denoising SUBWORD --permute-sentences 0 BOTH
languages    validate    --arch bart_base --task multilingual_denoising SUBWORD BOTH
text         validate    --arch bart_base --task span_masked_lm BOTH
none         -           --arch transformer_lm --task dummy_lm --tokens-per-sample 8 DUMMY DECODER
none         -           --arch roberta --task dummy_masked_lm --criterion masked_lm \
 --tokens-per-sample 8 DUMMY ENCODER
none         -           --arch transformer --task dummy_mt DUMMY BOTH
labelled     validate    --arch roberta --task sentence_prediction \
 --criterion sentence_prediction LABELS
labelled     validate    --arch xmod_base_13 --task sentence_prediction_adapters \
 --criterion sentence_prediction LABELS
labelled     validate    --arch roberta --task sentence_ranking --criterion sentence_ranking LABELS
""".replace("\\\n", "")
    .strip()
    .splitlines()
)
# words of the training that the other programs need, too
KEPT = (
    r"--(?:task|lang-pairs|mono-langs|valid-lang-pairs|tokens-per-sample|num-classes"
    r"|criterion(?= sentence)) \S+"
)
TRAINING = (
    "--optimizer adam --lr 0.001 --max-update 3 --batch-size 6 --no-epoch-checkpoints --cpu"
    " --disable-validation --required-batch-size-multiple 1"
).split()
LINES = 4
NEED_LIBNAT = "insertion_transformer|levenshtein_transformer"


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


# one of each kind of data and program; the others are slow
USUAL = re.compile(
    r"interactive --arch transformer |arch (fconv|lstm|transformer_align|multilingual_transformer) "
    r"|eval_lm +--arch transformer_lm|task (masked_lm|denoising|dummy_mt|sentence_prediction) "
)


@pytest.mark.parametrize(
    "case",
    [case if USUAL.search(case) else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
)
def test_it_trains_and_writes(case, data, tmp_path):
    kind, program, words = case.split(maxsplit=2)
    words = " ".join(SHORT.get(word, word) for word in words.split())
    if re.search(NEED_LIBNAT, words):
        pytest.importorskip("fairseq.libnat")  # compiled
    place = [] if kind == "none" else [data / kind]
    run_cli("train", *place, *words.split(), *TRAINING, "--save-dir", tmp_path)
    checkpoint = tmp_path / "checkpoint_last.pt"
    assert checkpoint.is_file()
    if program == "-":
        return
    text = (data / "toy" / "raw" / "test.src").read_text()
    kept = " ".join(re.findall(KEPT, words))
    command = [data / kind, "--path", checkpoint, *kept.split(), "--cpu", "--batch-size", 4]
    writes = program in ("generate", "interactive")
    if writes:
        command += ["--beam", 2, "--max-len-b", 30 if kind == "text" else 9]
        if kind == "text":
            command += ["--sample-break-mode", "eos"]
        if kind == "pair":
            command += ["--source-lang", "src", "--target-lang", "tgt"]
        if "nat_loss" in words:
            command += ["--iter-decode-max-iter", 2, "--iter-decode-eos-penalty", 0]
        if "align" in words:
            command += ["--print-alignment", "hard"]
    if program == "validate":
        command += ["--valid-subset", "valid"]
    more = ["--buffer-size", LINES] if program == "interactive" else []
    output = run_cli(program, *command, *more, stdin=text).output
    if writes:
        numbers = re.findall(r"^H-(\d+)\t", output, re.MULTILINE)
        assert sorted(map(int, numbers)) == list(range(LINES))
    else:
        assert re.search(r"Perplexity: \d|\| loss \d", output)
