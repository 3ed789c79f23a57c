"""A Translator in a worker that is killed once, when it is given the lines from 12 on.

LOST_WORKER: a file that it creates before. LOST_PARENTS: how many processes above it are killed
instead; 2 is Spark's executor.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

from fairseq_plugins import api


class Translator(api.Translator):
    def hypotheses(self, lines: Any, *more: Any, first: int = 0, **how: Any) -> Any:
        if first == 12 and not Path(os.environ["LOST_WORKER"]).exists():
            Path(os.environ["LOST_WORKER"]).touch()
            process = os.getpid()
            for _ in range(int(os.environ["LOST_PARENTS"])):
                process = int(Path(f"/proc/{process}/stat").read_text().split()[3])
            os.kill(process, signal.SIGKILL)
            time.sleep(60)  # a worker that is not killed itself ends with the one that is
        return super().hypotheses(lines, *more, first=first, **how)
