"""Commands of fairseq that cannot work end in one line, before anything is written."""

import re
import shlex

import pytest

from fairseq_plugins.errors import one_line
from tests.conftest import OPTIMIZATION, TINY_TRANSFORMER, run_cli

SHORT = {
    "TINY": [*TINY_TRANSFORMER, *OPTIMIZATION, "--max-update", "1"],
    "ADAM": "--optimizer adam --lr 0.001 --max-tokens 99 --max-update 1".split(),
    "NO-CHECKPOINT": [],
    "LABELS": "--task classification --criterion sentence_prediction".split(),
}
# the command, its options without the data, and what the message holds
REJECTED = r"""
train TINY --bf16 --fp16 -> --bf16 and --fp16 cannot be combined
train TINY --fp16 -> --fp16 needs a GPU: remove it on a CPU
train TINY --save-interval 2 --max-epoch 3 --max-update 0 -> --save-interval 2 does not save the las
train TINY --save-interval 0 -> --save-interval 0: must be at least 1
train TINY --validate-interval 0 -> --validate-interval 0: must be at least 1
train TINY --stop-min-lr 1e-9 --lr-scheduler inverse_sqrt --warmup-updates 4\
 -> --stop-min-lr 1e-09 ends the training before its first update.*--warmup-init-lr
train TINY --stop-min-lr 1e-9 --lr-scheduler polynomial_decay --warmup-updates 4\
 --total-num-update 9 -> --stop-min-lr 1e-09 ends .* rate begins at 0: remove it
train TINY --best-checkpoint-metric bleu -> bleu is not measured: add --eval-bleu
train TINY --best-checkpoint-metric bleu --eval-bleu\
 -> bleu keeps the lowest: add --maximize-best-checkpoint-metric
train TINY --best-checkpoint-metric nl_loss -> nl_loss is not measured: did you mean nll_loss
train TINY --best-checkpoint-metric rougeL -> rougeL is not measured by --task translation:
train TINY --eval-bleu-args '{"len_pen": 1}' -> len_pen is not an option of .*did you mean lenpen
train TINY --eval-bleu-args [4] -> --eval-bleu-args '\[4\]' is not a JSON object
train TINY --eval-bleu-remove-bpe bpe -> --eval-bleu-remove-bpe bpe is unknown: give subword
train TINY --batch-size 0 -> --batch-size 0: must be at least 1
train TINY --max-tokens 0 -> --max-tokens 0: must be at least 1
train TINY --lr 0.1,-1 -> --lr -1.0: must be at least 0
train TINY --update-freq 0 -> --update-freq 0: must be at least 1
train TINY --label-smoothing 1.5 -> --label-smoothing 1.5: must be from 0 to 1
train TINY --quant-noise-pq 0.1 -> --quant-noise-pq 0.1 needs --bf16 or --fp16
train TINY --write-checkpoints-asynchronously -> pip install iopath
train TINY --task translation_sampled --bpe-dropout 1.5 -> --bpe-dropout 1.5 must be at least 0
train TINY --task translation_sampled --bpe-dropout 0.1 -> needs .*bpe.codes, which is missing
train TINY --task translation_sampled --bpe-dropout 0.1 --truncate-source\
 -> --truncate-source needs texts
train TINY --criterion label_smoothed_cross_entropy_simcut --simcut-p 1.0 -> --simcut-p 1.0: must
train TINY --criterion label_smoothed_cross_entropy_rdrop --rdrop-alpha -1 -> --rdrop-alpha -1.0: m
train TINY --arch transformer_ftc --encoder-blocks 1,1 --share-all-embeddings\
 -> needs one dictionary for both languages
train TINY --store-ema --ema-decay 1.5 -> --ema-decay 1.5: must be from 0 to 1
train TINY --max-epoch -5 -> --max-epoch -5: must be at least 0
train TINY --adam-betas 0.9 -> --adam-betas '0.9': give two numbers below 1, such as
train TINY --adam-betas '(0.9, 1)' -> --adam-betas '.0.9, 1.': give two numbers below 1
train TINY --lr-scheduler inverse_sqrt --warmup-updates 0 -> --warmup-updates 0: must be at least 1
train TINY --distributed-init-method tcp://localhost:1\
 -> tcp://localhost:1 would train nothing.*torchrun
train TINY --distributed-init-method tcp://localhost:1 --distributed-world-size 2\
 -> tcp://localhost:1 would train nothing.*torchrun
train TINY --skip-invalid-size-inputs-valid-test --max-source-positions 1\
 --required-batch-size-multiple 1 -> The dataset is empty
train TINY --finetune-from-model none.pt -> --finetune-from-model none.pt does not exist
train TINY --finetune-from-model . -> --finetune-from-model . is a folder, and training would start
train TINY --restore-file . -> --restore-file . is a folder, and training would start from scratch
train TINY --restore-file none.pt -> --restore-file none.pt does not exist, and training would start
train TINY --arch transformer_ftc --encoder-blocks 1,1 --init-from none\
 -> --init-from none does not exist
train TINY --arch transformer_ftc --encoder-blocks 1,1 --init-only encoder\
 -> --init-only encoder needs --init-from: add
train TINY --arch transformer_ftc --encoder-blocks 1,1 --copy-next\
 -> --copy-next needs --copy-attention: add it, or
train TINY --arch transformer_fct -> --arch transformer_fct is unknown: did you mean transformer_ft
train TINY --arch transformer_ftc --encoder-blocks 1,1 --time-window two\
 -> --time-window 'two': must be a whole number
train TINY --time-window 2 -> does not take --time-window 2
train TINY --save-dir /dev/null/x -> /dev/null/x: Not a directory
train TINY -s fr -t tgt -> dict.fr.txt is missing: give the languages of dict.src.txt, dict.tgt
train TINY -s tgt -t tgt -> has no valid.tgt-tgt.tgt.idx: choose another subset or other languag
train --max-tokens 9 -> --arch is missing: give one, such as transformer
train --arch transformer --max-tokens 9 -> --optimizer is missing: give one
train --arch transformer --optimizer sgd -> --batch-size
train --arch transformer ADAM --task translation --criterion sentence_prediction\
 -> sentence_prediction is for labels, but --task translation has text: use --criterion l
train --arch transformer ADAM --task classification --criterion cross_entropy\
 -> cross_entropy is for text, but --task classification has labels: use --criterion sen
train --arch transformer ADAM LABELS -> --arch transformer gives no labels, but --task clas.*arch en
train --arch encoder_classifier ADAM --task summarization --criterion cross_entropy\
 -> encoder_classifier has no decoder, but --task summarization .* --task classification --crit
generate NO-CHECKPOINT -> give the checkpoint of a model: --path FILE
generate --path CHECKPOINT:nowhere.pt -> Model file not found: nowhere.pt
generate --num-shards 2 --shard-id 2 -> --shard-id 2: must be from 0 to 1
generate --sacrebleu -> use --scoring sacrebleu
generate --constraints -> only fairseq-interactive reads constraints
generate --gen-subset valid --max-len-a 0 --max-len-b 80 --min-len 80 --no-repeat-ngram-size 1\
 -> no output of at most 80 tokens .* is 80
generate --gen-subset valid --max-len-a 0 --max-len-b 80 --min-len 81 --print-alignment hard\
 -> no output for a sentence: .*--min-len .it is 81., a larger length limit
generate --sampling -> --sampling writes as many outputs as --beam 5: add --nbest 5, or give
interactive --sampling -> --sampling writes as many outputs as --beam 5: add --nbest 5, or give
generate --nbest 9 -> --nbest 9 is above --beam 5
generate --lenpen nan -> --lenpen nan: must be from -10 to 10
interactive --temperature 0 -> --temperature 0.0: must be at least 0.001
interactive --input none.txt -> none.txt: No such file or directory
interactive --num-shards 2 -> --num-shards 2 only divides the work of
interactive --lm-path x -> --lm-path has no effect in fairseq-interactive
interactive --results-path x -> --results-path has no effect in fairseq-interactive
interactive --score-reference -> --score-reference has no effect in fairseq-interactive
validate -> --max-tokens or --batch-size
validate --path nowhere.pt --max-tokens 9 -> Model file not found
validate --num-shards 2 -> --num-shards 2 only divides the work of
"""


@pytest.mark.parametrize("line", REJECTED.replace("\\\n", "").strip().splitlines())
def test_what_cannot_work_is_one_line(line, tiny_checkpoint, toy_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given, _, message = line.partition(" -> ")
    command, *words = shlex.split(given)
    words = [each for word in words for each in SHORT.get(word, [word])]
    words = [word.replace("CHECKPOINT", str(tiny_checkpoint)) for word in words]
    if command != "train" and "NO-CHECKPOINT" not in given:
        words = ["--path", tiny_checkpoint, *words]
    if command == "train" and "--save-dir" not in words:
        words += ["--save-dir", "run"]
    with pytest.raises(Exception) as error:
        run_cli(command, toy_data.bin, *words, "--cpu")
    told = str(one_line(error.value, command))
    assert re.search(message, told) and "\n" not in told
    assert not list(tmp_path.rglob("*.pt"))
