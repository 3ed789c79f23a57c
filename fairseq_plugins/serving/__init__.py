"""Run an exported model, without torch and fairseq.

from fairseq_plugins.serving import Translator
Translator("exported").translate(["Guten Morgen!"])
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_plugins.summarizer import Summarizer, Summary
    from fairseq_plugins.translator import Scored, Translator

    from .folder import is_export

__all__ = ["Scored", "Summarizer", "Summary", "Translator", "is_export"]
PLACES = ["translator", "summarizer", "summarizer", "translator", "serving.folder"]


def __getattr__(name: str) -> Any:
    """The names of 0.1.0, on demand, as these modules import this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = dict(zip(__all__, PLACES))[name]
    return getattr(importlib.import_module(f"fairseq_plugins.{place}"), name)
