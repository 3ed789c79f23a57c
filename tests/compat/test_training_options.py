"""Options of a training: obeyed, or refused in one line before anything is built."""

import pytest
import torch

from tests.conftest import load, updates


def test_an_adaptive_softmax_is_trained_with_its_own_criterion(run_train, toy_data, tmp_path):
    words = "--arch transformer_ftc --encoder-blocks 1,1 --decoder-layers 1 --optimizer adam"
    words += " --adaptive-softmax-cutoff 10 --criterion adaptive_loss --ddp-backend legacy_ddp"
    words += " --encoder-embed-dim 8 --decoder-embed-dim 8 --encoder-attention-heads 2"
    words += " --decoder-attention-heads 2 --max-tokens 100 --max-update 1 --lr 1e-3 --cpu"
    run_train(toy_data.bin, *words.split(), "--save-dir", tmp_path, "--disable-validation")
    assert updates(load(tmp_path)) == 1


def test_the_accuracy_of_tokens_is_measured_where_it_is_asked_for(
    run_train, toy_data, train_args, tmp_path
):
    words = ["--save-dir", tmp_path, "--max-epoch", 1, "--report-accuracy"]
    words += ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]
    run_train(toy_data.bin, *train_args, *words)
    assert 0 < load(tmp_path, "checkpoint_best.pt")["extra_state"]["best"] < 100


def test_what_works_is_not_refused(run_train, toy_data, train_args, tmp_path):
    words = ["--save-interval", 2, "--max-epoch", 2, "--disable-validation"]
    words += ["--stop-min-lr", 1e-9, "--lr-scheduler", "inverse_sqrt", "--warmup-updates", 4]
    words += ["--warmup-init-lr", 1e-7, "--eval-bleu-args", '{"beam": 2, "max_len_b": 9}']
    run_train(toy_data.bin, *train_args, "--save-dir", tmp_path, *words)
    assert load(tmp_path)["extra_state"]["train_iterator"]["epoch"] == 3


def test_the_best_score_of_another_training_does_not_count(
    run_train, toy_data, train_args, tmp_path
):
    words = [toy_data.bin, *train_args]
    run_train(*words, "--save-dir", tmp_path / "first", "--max-epoch", 1)
    name = tmp_path / "first" / "checkpoint_last.pt"
    state = torch.load(name, weights_only=False)
    state["extra_state"]["best"] = 0.001
    torch.save(state, name)
    words += ["--restore-file", name, "--reset-dataloader"]
    run_train(*words, "--save-dir", tmp_path / "second", "--max-epoch", 1)
    best = load(tmp_path / "second", "checkpoint_best.pt")["extra_state"]["best"]
    assert 1 < best < 20


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_hydra_trains_in_the_precision_that_is_asked_for(precision):
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.distributed import utils
    from omegaconf import OmegaConf

    cfg = OmegaConf.structured(FairseqConfig(model=None))
    setattr(cfg.common, f"memory_efficient_{precision}", True)
    cfg.distributed_training.distributed_world_size = 1
    seen = []
    utils.call_main(cfg, lambda cfg: seen.append(getattr(cfg.common, precision)))
    assert seen == [True]
