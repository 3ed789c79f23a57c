"""Translates and summarizes with an exported model, without torch and fairseq.

from fairseq_plugins.serving import Translator
Translator("exported").translate(["Guten Morgen!"])
"""

from .folder import is_export
from .summarizer import Summarizer
from .text import Summary
from .translator import Scored, Translator

__all__ = ["Scored", "Summarizer", "Summary", "Translator", "is_export"]
