"""Trainings and translations in this process, which has imported fairseq already."""

import contextlib
import sys
from unittest import mock

from fairseq_plugins.evaluation import hypotheses
from fairseq_plugins.fairseq_program import words_of
from fairseq_plugins.training.jobs import Jobs
from tests.conftest import run_cli


class Here(Jobs):
    """Jobs that start no process for fairseq-train and for the hypotheses of an evaluation."""

    def run(self, command, log, on_line, lock=None, threads=None, begun=None):
        train = [sys.executable, *words_of("train")]
        if command[: len(train)] == train:
            log.write_text(run_cli("train", *command[len(train) :]).output, "utf-8")
            for line in log.read_text("utf-8").splitlines():
                on_line(line)
            return 0
        _, _, module, *words = command
        assert module == hypotheses.__name__
        with open(log, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            with mock.patch.object(sys, "argv", [module]):
                hypotheses.main(words)
        return 0
