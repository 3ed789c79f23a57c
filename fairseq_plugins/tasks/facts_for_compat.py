"""What the workarounds for fairseq (`compat`) must know about this plugin."""

from pathlib import Path

from fairseq_plugins.compat.plugin import plugin
from fairseq_plugins.data.prepared_folder import RECORD, check_intact, digests_of_words
from fairseq_plugins.scoring.rouge import METRICS


def how_to_prepare(folder: Path) -> str:
    prepared_here = (folder / RECORD).exists()
    return "run the prepare-* command that made it again" if prepared_here else ""


def install() -> None:
    plugin.text_model, plugin.label_model = "transformer_ftc", "encoder_classifier"
    plugin.text_criterion = "label_smoothed_cross_entropy_fused"
    plugin.label_task = "classification"
    plugin.scores["rouge"] = METRICS
    plugin.digests_of_words = digests_of_words
    plugin.check_intact = check_intact
    plugin.how_to_prepare = how_to_prepare
