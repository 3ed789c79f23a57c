"""Filter sentence pairs for training with the rules of Moses' clean-corpus-n."""

from typing import Any, NamedTuple

from fairseq_plugins.text.languages import separate_unspaced
from fairseq_plugins.text.processing import Processing
from fairseq_plugins.text.sentences import is_blank

LONGEST_WORD = 1000  # characters; Moses removes pairs with a longer word


class Limits(NamedTuple):
    """The limits for a sentence pair, in words.

    Spaces separate them. In scripts without spaces they are counted as in `separate_unspaced`,
    unless the text was tokenised before.
    """

    min_words: int = 1
    max_words: int = 175
    max_ratio: float = 1.5

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "Limits":
        """Take the limits from the settings of a preparation."""
        return cls(*(settings[name] for name in cls._fields))

    @staticmethod
    def uneven(ratio: float) -> str:
        """The reason to skip a pair if its sides differ in length by more than this ratio."""
        return f"one side more than {ratio:g} times as long"

    @staticmethod
    def advice(settings: dict[str, Any], read: int, dropped: dict[str, int]) -> str:
        """What to do if most pairs were skipped for the ratio of their lengths; else empty."""
        ratio = settings["max_ratio"]
        if 2 * dropped.get(Limits.uneven(ratio), 0) <= read:
            return ""
        told = f"Most pairs were filtered out for --max-ratio {ratio:g}. "
        if Processing.of(settings).tokenised_before:
            return told + (
                "Text without spaces between words counts as one word a line: for it give "
                "--max-ratio 1000"
            )
        return told + "Give more for short sentences or distant languages, such as 9"

    def reason_against(
        self, source: str, target: str, tokenised_before: bool = False
    ) -> str | None:
        """The reason to skip a tokenised pair, or None to keep it."""
        if not tokenised_before:
            source, target = separate_unspaced(source), separate_unspaced(target)
        words = source.split(), target.split()
        lengths = [len(side) for side in words]
        if is_blank(source) or is_blank(target):
            return "empty side"
        if max(lengths) > self.max_words:
            return f"more than {self.max_words} words"
        if min(lengths) < self.min_words:
            return f"fewer than {self.min_words} words"
        if max(lengths) / min(lengths) > self.max_ratio:
            return self.uneven(self.max_ratio)
        longest = max(len(source), len(target))  # most lines are shorter than a long word
        if longest > LONGEST_WORD and any(len(w) > LONGEST_WORD for side in words for w in side):
            return f"a word of more than {LONGEST_WORD} characters"
        return None
