"""From MIND's files to the scores of a table, by the real commands."""

import json
import shutil

import numpy as np
import pytest
from fairseq import checkpoint_utils

from fairseq_plugins.cli import evaluate
from fairseq_plugins.evaluate.evaluate import Evaluation
from fairseq_plugins.evaluate.request import EvaluationRequest
from fairseq_plugins.lab.recommendation.scores import METRICS, of_impression
from tests.conftest import USER_DIR
from tests.lab import made_up_news

TRAINING = (
    "--task news_recommendation --criterion news_recommendation --arch news_recommender"
    " --encoder-layers 1 --encoder-embed-dim 24 --encoder-ffn-embed-dim 36"
    " --encoder-attention-heads 2 --encoder-token-mixer fastformer --dropout 0 --optimizer adam"
    " --lr 0.01 --batch-size 16 --max-epoch 4 --seed 1 --no-progress-bar --no-epoch-checkpoints"
    " --validate-interval 4 --save-interval 4 --best-checkpoint-metric auc"
    " --maximize-best-checkpoint-metric"
).split()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("news")
    made_up_news.write(folder)
    return made_up_news.prepare(folder)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory, run_train):
    folder = tmp_path_factory.mktemp("run")
    words = [data, *TRAINING, "--user-dir", USER_DIR / "lab", "--save-dir", folder]
    vectors = folder / "vectors.txt"
    vectors.write_text("".join(f"{word} {' '.join(['0.1'] * 24)}\n" for word in ("rain", "goal")))
    log = run_train(*words, "--encoder-embed-path", vectors).output
    assert "2 of the dictionary's" in log
    vectors.unlink()  # the checkpoint has them
    return folder, log


def test_a_recommender_learns_interests_and_is_scored_as_officially(data, trained):
    folder, log = trained
    last = log.rpartition("valid on 'valid' subset")[2]
    assert all(f"| {name} " in last for name in ("auc", "mrr", "ndcg5", "ndcg10"))
    system = Evaluation(EvaluationRequest(data, folder, cpu=True), print)
    system.run()
    assert system.scores["AUC"]["score"] > 70
    low, high = system.scores["AUC"]["interval"]
    assert low <= system.scores["AUC"]["score"] <= high
    # the file for the challenge says the same
    predicted = (system.folder / "prediction.txt").read_text().splitlines()
    behaviors = (data.parent / "dev/behaviors.tsv").read_text().splitlines()
    assert len(predicted) == len(behaviors)
    values = []
    for line, impression in zip(predicted, behaviors):
        name, _, _, _, shown = impression.split("\t")
        number, ranks = line.split(" ", 1)
        labels = [int(word[-1]) for word in shown.split()]
        ranks = json.loads(ranks)
        assert number == name and sorted(ranks) == list(range(1, len(labels) + 1))
        values.append(of_impression(labels, 1 / np.array(ranks)))
    for name, value in zip(METRICS, np.mean(values, axis=0)):
        assert system.scores[name]["score"] == pytest.approx(100 * value)


def test_validation_and_test_agree(data, trained):
    """One sees batches in training, the other after it."""
    folder, log = trained
    state = checkpoint_utils.load_checkpoint_to_cpu(str(folder / "checkpoint_best.pt"))
    best = state["extra_state"]["best"]
    of_valid = Evaluation(EvaluationRequest(data, folder, split="valid", cpu=True), print)
    of_valid.run()
    assert of_valid.scores["AUC"]["score"] == pytest.approx(best, abs=0.01)
    assert f"auc {best:g} " in log


def test_recommenders_are_compared(data, trained, tmp_path, capsys):
    equal = shutil.copytree(trained[0], tmp_path / "equal")
    words = [data, trained[0], "--compare", equal, "--user-dir", USER_DIR / "lab", "--cpu"]
    assert evaluate.main(list(map(str, words))) == 0
    assert capsys.readouterr().out.count(" +0.00, p = 1.0000, two-sided: ") == len(METRICS)
