"""A --user-dir whose trainings lose a machine at a point that the environment defines.

LOST_AT: before this update, the machine of the process dies: the command, torchrun and the process.
ALONE_UNTIL: before this update, a process that trains alone waits until torchrun ends it, because
another machine has joined.
"""

import os
import signal
from pathlib import Path
from typing import Any

from fairseq.trainer import Trainer

train_step = Trainer.train_step


def step_of_a_machine(self: Trainer, *args: Any, **kwargs: Any) -> Any:
    update = str(self.get_num_updates())
    if update == os.environ.get("LOST_AT"):
        torchrun = os.getppid()
        command = int(Path(f"/proc/{torchrun}/stat").read_text().split()[3])
        os.kill(torchrun, signal.SIGSTOP)  # it ends this process, or itself, when another dies
        for process in (command, torchrun, os.getpid()):
            os.kill(process, signal.SIGKILL)
    if update == os.environ.get("ALONE_UNTIL") and os.environ["WORLD_SIZE"] == "1":
        signal.pause()
    return train_step(self, *args, **kwargs)


Trainer.train_step = step_of_a_machine  # type: ignore[method-assign]
