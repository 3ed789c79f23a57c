"""Prepare data that a teacher wrote: small models learn from large ones.

    fairseq-plugins distill DATA RUN --last 10 --out NEW
    fairseq-plugins distill DATA RUN_A RUN_B RUN_C --last 10 --keep nearest --out NEW
    fairseq-plugins distill DATA EXPORT --extra more.de --out NEW
    fairseq-plugins distill DATA RUN --back-translate more.en --reverse EN_DE --out NEW
    fairseq-plugins train transformer_ftc_deep NEW

The teacher translates or summarizes the training text of DATA, a prepared folder. NEW is a prepared
folder with its output and the same subwords and dictionaries; the validation and test sets stay
original.
The teacher is a run, a checkpoint or an exported model; several runs are an ensemble. The report
gives the distance of the teacher's output from the references.

Where the teacher writes nothing, reaches its length limit or writes an unknown word, the original
is kept. Rerun to resume. Until all is done, NEW is named NEW.part.
"""

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.distill.request import DistillationRequest
from fairseq_plugins.options.arguments import command
from fairseq_plugins.system.quiet import only_warnings_of_fairseq


@command
@only_warnings_of_fairseq()
def main(request: DistillationRequest) -> None:
    needs_fairseq("distill", request.user_dir)
    from fairseq_plugins.data.report import show
    from fairseq_plugins.distill.distillation import Distillation

    Distillation(request).run()
    show(request.out)
