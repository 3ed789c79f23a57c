"""Subword models learnt from both sides of the training text: byte-pair encoding, SentencePiece."""

import contextlib
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import count_lines, open_to_read, read_lines, write_bytes
from fairseq_plugins.system.progress import progress_bar
from fairseq_plugins.text.protection import SYMBOL
from fairseq_plugins.text.sentences import BOUNDARY

MOST_LINES = 500_000  # to learn from: SentencePiece holds them in memory
LONGEST_SAMPLE = 1000  # characters; SentencePiece ignores lines over 4,192 bytes
LONGEST_WORD = 1000  # characters that BPE segments at once; the time grows with their square
VERSION = "#version: 0.2"  # the first line of a file of subword-nmt; the oldest have none
MOST_WORDS = 500_000  # words whose pieces subword-nmt caches: 180 MB
# the first entries of fairseq's dictionaries, which their files omit
END = "</s>"
SPECIAL = ("<s>", "<pad>", END, "<unk>")


class BytePairEncoding:
    """subword-nmt. Every piece of a word but the last ends with ``@@``."""

    file_name = "bpe.codes"
    contents = "BPE merges"
    fairseq_name = "subword_nmt"  # for --remove-bpe and --post-process

    def __init__(self, model: Path):
        from subword_nmt.apply_bpe import BPE

        complaint = io.StringIO()
        try:
            with contextlib.redirect_stderr(complaint):  # it prints, and exits
                with open(model, encoding="utf-8", newline="\n") as codes:
                    first = codes.readline(len(VERSION) + 2).rstrip()
                    if first.startswith("#version") and first != VERSION:
                        raise ValueError(f"its first line is not {VERSION}")
                    self.bpe: Any = BPE(codes, glossaries=[SYMBOL.pattern])
        except (OSError, SystemExit, ValueError, IndexError) as error:
            reason = (complaint.getvalue() or str(error)).strip().splitlines()
            raise ConfigurationError(
                f"{model} is damaged or holds no merges of subword-nmt "
                f"({reason[0] if reason else type(error).__name__}): copy it again"
            ) from None

    def __len__(self) -> int:
        """The number of merges."""
        return len(self.bpe.bpe_codes)

    @staticmethod
    def learn(files: Sequence[Path], model: Path, size: int, symbols: Sequence[str] = ()) -> None:
        """Learn at most `size` merges from the text of `files`.

        If there are more than `MOST_LINES` lines, it reads as many, evenly spaced. Nothing is
        ever merged with a symbol of protected text.

        Raises:
            ConfigurationError: the files have no word of two characters.
        """
        from subword_nmt import learn_bpe

        lines = sampled_lines(files, "words counted")
        previous, learn_bpe.tqdm = (
            getattr(learn_bpe, "tqdm", None),
            lambda merges: progress_bar(merges, description="merges learnt"),
        )
        codes = io.StringIO()
        try:
            learn_bpe.learn_bpe(lines, codes, size)
        except ValueError:
            raise ConfigurationError(
                f"no word of two characters in {files[0]} to learn merges on: give other text, or "
                "--subword sentencepiece"
            ) from None
        finally:
            learn_bpe.tqdm = previous
        write_bytes(model, codes.getvalue().encode("utf-8"))

    def cut(self, line: str) -> str:
        """Segment a line into pieces, separated by spaces.

        Words of the text that fairseq's dictionaries use as marks, such as ``</s>``, are unknown.
        A word that ends with ``@@`` gets a last piece ``@``, to make its end visible. A word of
        more than `LONGEST_WORD` characters is segmented in parts of this length.
        """
        if len(self.bpe.cache) > MOST_WORDS:
            self.bpe.cache = {}  # another thread may be reading the old one
        if "@@" in line or len(line) > LONGEST_WORD:
            pieces = " ".join(piece for word in line.split() for piece in self._cut_word(word))
        else:
            pieces = self.bpe.segment(line)
        if "<" in line:
            pieces = " ".join("<unk>" if p in SPECIAL else p for p in pieces.split(" "))
        return pieces

    def _cut_word(self, word: str) -> list[str]:
        """The pieces of a word; only the last one does not end with ``@@``."""
        pieces = []
        while len(word) > LONGEST_WORD:
            # no merge has a line feed, so that it takes the place of the rest of the word
            pieces += self.bpe.segment_tokens([word[:LONGEST_WORD] + "\n"])[:-1]
            word = word[LONGEST_WORD:]
        return pieces + _with_an_end(self.bpe.segment_tokens([word]))

    @staticmethod
    def is_word_end(pieces: Sequence[str], end: int) -> bool:
        """Whether a word ends with the piece before position `end`."""
        return not pieces[end - 1].endswith("@@")

    def join(self, line: str) -> str:
        """Join pieces to words."""
        return (line + " ").replace("@@ ", "").rstrip()


def _with_an_end(pieces: list[str]) -> list[str]:
    """The pieces of a word; the last one does not end with ``@@``."""
    last = pieces[-1]
    return [*pieces[:-1], last[:-1] + "@@", "@"] if last.endswith("@@") else pieces


class SentencePiece:
    """A unigram model of SentencePiece. The first piece of a word begins with ``▁``.

    It keeps every character of the text except ``▁``, which becomes a space, and merges runs of
    spaces.
    """

    file_name = "sentencepiece.model"
    contents = "SentencePiece subwords"
    fairseq_name = "sentencepiece"

    def __init__(self, model: Path):
        import sentencepiece

        # from bytes: the library itself would write about a damaged file
        with open_to_read(model) as file:
            content = file.read()
        self._processor: Any = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(content)
            if not content or not len(self):
                raise RuntimeError
        except RuntimeError:
            raise ConfigurationError(
                f"{model} is damaged or not a model of SentencePiece: copy it again"
            ) from None

    @staticmethod
    def learn(files: Sequence[Path], model: Path, size: int, symbols: Sequence[str] = ()) -> None:
        """Learn a unigram model of at most `size` pieces from the text of `files`.

        If there are more than `MOST_LINES` lines, it reads as many, evenly spaced. `symbols` are
        characters that become pieces of their own.

        Raises:
            ConfigurationError: the text has no words, or `size` is too small for its characters.
        """
        import sentencepiece

        trained = io.BytesIO()
        lines = sampled_lines(files, "sentences read")
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=itertools.chain.from_iterable(map(_short_lines, lines)),
                model_writer=trained,
                model_type="unigram",
                vocab_size=size,
                user_defined_symbols=list(symbols),
                hard_vocab_limit=False,  # a small text has fewer pieces
                normalization_rule_name="identity",  # the text must come back
                character_coverage=1.0,
                minloglevel=1,
            )
        except (RuntimeError, ValueError) as error:
            reason = f"give another number, such as 8000 ({str(error).splitlines()[-1].strip()})"
            if "sentences_.empty()" in reason:
                raise ConfigurationError(f"no text in {files[0]} to learn subwords on") from None
            few = re.search(r"smaller than required_chars. \d+ vs (\d+)", reason)
            if few:
                reason = f"give at least {few[1]}, as each character needs a subword"
            raise ConfigurationError(
                f"--vocab-size {size} does not fit this text: {reason}"
            ) from None
        write_bytes(model, trained.getvalue())

    def __len__(self) -> int:
        return self._processor.get_piece_size()

    @property
    def pieces(self) -> list[str]:
        """All pieces, by their numbers."""
        return [self._processor.id_to_piece(number) for number in range(len(self))]

    @property
    def rare(self) -> set[str]:
        """The pieces for which `numbers` and `cut` may differ."""
        return {self._processor.id_to_piece(self._processor.unk_id()), *SPECIAL, BOUNDARY}

    def numbers(self, texts: Sequence[str], threads: int) -> list[list[int]]:
        """The numbers of the pieces of each text."""
        return self._processor.encode(texts, out_type=int, num_threads=threads)

    def cut(self, line: str) -> str:
        """Segment a line into pieces, separated by spaces.

        Characters that the model lacks are returned unchanged. A piece that equals a mark of
        fairseq's dictionaries or the sentence boundary is split into characters.
        """
        pieces = self._processor.encode(line, out_type=str)
        if "<" in line:
            marks = (*SPECIAL, BOUNDARY)
            pieces = [part for p in pieces for part in (p if p in marks else (p,))]
        return " ".join(pieces)

    @staticmethod
    def is_word_end(pieces: Sequence[str], end: int) -> bool:
        """Whether a word ends with the piece before position `end`."""
        return end == len(pieces) or pieces[end].startswith("\u2581")

    def join(self, line: str) -> str:
        """Join pieces to text."""
        return line.replace(" ", "").replace("\u2581", " ").strip()


KINDS: dict[str, type[Any]] = {"bpe": BytePairEncoding, "sentencepiece": SentencePiece}


def step_of_lines(files: Sequence[Path]) -> int:
    """How many lines of the files there are for each line to learn from, at most `MOST_LINES`."""
    return -(-sum(map(count_lines, files)) // MOST_LINES) or 1


def sampled_lines(files: Sequence[Path], description: str) -> Iterator[str]:
    """The lines to learn from, with a progress bar."""
    lines = progress_bar(
        itertools.chain.from_iterable(map(read_lines, files)),
        description=description,
        total=sum(map(count_lines, files)),
        unit=" lines",
    )
    return itertools.islice(lines, 0, None, step_of_lines(files))


def _short_lines(text: str) -> Iterator[str]:
    """Split a line, at spaces if possible, into parts that SentencePiece learns from."""
    while len(text) > LONGEST_SAMPLE:
        end = text.rfind(" ", 1, LONGEST_SAMPLE)
        end = end if end > 0 else LONGEST_SAMPLE
        yield text[:end]
        text = text[end:].lstrip()
    yield text
