"""Text as numbers: fairseq's dictionaries and binary data, equal to fairseq-preprocess's.

Each text is segmented once. Its subwords get preliminary numbers in a file, which arrays then map
to those of the dictionary, because that is sorted by what was counted.
"""

import contextlib
import itertools
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import in_groups, read_lines
from fairseq_plugins.text.subwords import SPECIAL, SentencePiece

BATCH, CHARACTERS = 10_000, 1 << 22  # texts, and characters, that are segmented at a time
MOST_WORDS = 500_000  # whose numbers are kept: of BPE, 300 MB
UNKNOWN = "<unk>"
Numbers = list[list[int]]


class Symbols(dict[str, int]):
    """Preliminary numbers of symbols, in the order of their first use."""

    def __missing__(self, symbol: str) -> int:
        self[symbol] = number = len(self)
        return number


class Words:
    """Numbers of texts of words that spaces separate; each distinct word is segmented once.

    Args:
        cut: gives the subwords of a word; without it, a word is a symbol, but one that fairseq's
            dictionaries use as a mark, such as ``</s>``, is unknown.
    """

    def __init__(self, cut: Callable[[str], str] | None = None):
        cut = cut or (lambda word: UNKNOWN if word in SPECIAL else word)
        self.symbols = Symbols()
        self._known = _Cache(lambda word: [self.symbols[each] for each in cut(word).split()])

    def __call__(self, texts: Sequence[str]) -> Numbers:
        if len(self._known) > MOST_WORDS:
            self._known.clear()
        known = self._known
        return [[n for word in text.split() for n in known[word]] for text in texts]


class Bytes:
    """Numbers of the bytes of texts in UTF-8; their symbols are two hexadecimal digits."""

    def __init__(self) -> None:
        self.symbols = Symbols({f"{byte:02x}": byte for byte in range(256)})

    def __call__(self, texts: Sequence[str]) -> Numbers:
        return [list(text.encode("utf-8")) for text in texts]


class Pieces:
    """Numbers of SentencePiece's pieces of texts, from its own threads.

    `SentencePiece.cut` segments the rare texts with characters that the model lacks, or with a
    piece that it would not leave as it is.
    """

    def __init__(self, model: SentencePiece, threads: int = 1):
        self.symbols = Symbols({piece: number for number, piece in enumerate(model.pieces)})
        self._model, self._threads = model, threads
        self._rare = {self.symbols[piece] for piece in model.rare & self.symbols.keys()}

    def __call__(self, texts: Sequence[str]) -> Numbers:
        found = self._model.numbers(texts, self._threads)
        for number, text in enumerate(texts):
            if not self._rare.isdisjoint(found[number]):
                found[number] = [self.symbols[each] for each in self._model.cut(text).split()]
        return found


class _Cache(dict[str, Any]):
    """Results of a function by its argument."""

    def __init__(self, function: Callable[[str], Any]):
        super().__init__()
        self._function = function

    def __missing__(self, argument: str) -> Any:
        self[argument] = result = self._function(argument)
        return result


class Encoder:
    """Numbers of the texts of one side: in parts, truncated and joined again.

    Args:
        numbers: `Words`, `Bytes` or `Pieces`; sides may share one.
        lowercase: whether to lower-case texts.
        parts: separates a text into parts; None for one part.
        separator: the symbol between the numbers of parts.
        most: numbers kept of each part; None for all.

    Attributes:
        tag: a symbol that stays whole at the beginning of texts, before a space; None for none.
        truncated, lost: how many texts were truncated, and how many numbers they lost.
    """

    def __init__(
        self,
        numbers: Any,
        lowercase: bool = False,
        parts: Callable[[str], list[str]] | None = None,
        separator: str = "",
        most: int | None = None,
    ):
        self.numbers, self.lowercase, self.parts, self.most = numbers, lowercase, parts, most
        self.separator = numbers.symbols[separator] if parts else sys.maxsize
        self.tag: str | None = None
        self.truncated = self.lost = 0

    def __call__(self, texts: Sequence[str]) -> Numbers:
        if self.tag is None:
            return self._segmented(texts)
        number, start = self.numbers.symbols[self.tag], self.tag + " "
        rows = self._segmented([text.removeprefix(start) for text in texts])
        return [
            [number, *row][: self.most] if text.startswith(start) else row
            for row, text in zip(rows, texts)
        ]

    def _segmented(self, texts: Sequence[str]) -> Numbers:
        if self.lowercase:
            texts = [text.lower() for text in texts]
        if self.parts is None:
            rows = self.numbers(texts)
            return rows if self.most is None else [self._kept([row]) for row in rows]
        of_texts = [self.parts(text) for text in texts]
        found = iter(self.numbers(list(itertools.chain.from_iterable(of_texts))))
        return [self._kept(list(itertools.islice(found, len(parts)))) for parts in of_texts]

    def _kept(self, rows: Numbers) -> list[int]:
        lost = 0
        if self.most is not None:
            lost = sum(max(0, len(row) - self.most) for row in rows)
            rows = [row[: self.most] for row in rows]
        self.truncated += lost > 0
        self.lost += lost
        kept = rows[0] if rows else []
        for row in rows[1:]:
            kept = [*kept, self.separator, *row] if kept and row else kept or row
        return kept


class Encoded(NamedTuple):
    """One side of a split in preliminary numbers.

    Attributes:
        path: the file of all numbers, as int32.
        sizes: how many numbers each text has.
        counts: how often each number occurs.
        truncated, lost: see `Encoder`.
    """

    path: Path
    sizes: np.ndarray
    counts: np.ndarray
    truncated: int
    lost: int


def encode(texts: Iterable[str], encoder: Encoder, path: Path) -> Encoded:
    """Write the preliminary numbers of texts to a file, a batch at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    encoder.truncated = encoder.lost = 0
    sizes, counts = [np.zeros(0, np.int32)], np.zeros(0, np.int64)
    with open(path, "wb") as file:
        for batch in in_groups(texts, BATCH, CHARACTERS):
            rows = encoder(batch)
            sizes.append(np.fromiter(map(len, rows), np.int32, len(rows)))
            total = int(sizes[-1].sum())
            flat = np.fromiter(itertools.chain.from_iterable(rows), np.int32, total)
            file.write(flat.tobytes())
            more = np.bincount(flat, minlength=len(counts))
            more[: len(counts)] += counts
            counts = more
    return Encoded(path, np.concatenate(sizes), counts, encoder.truncated, encoder.lost)


def build_dictionary(symbols: Symbols, counts: Sequence[np.ndarray]) -> Any:
    """fairseq's dictionary of the symbols that occur, the most frequent first.

    Args:
        symbols: the symbols.
        counts: how often each occurs, in one or several texts.
    """
    from fairseq.data import Dictionary

    total = np.zeros(len(symbols), np.int64)
    for each in counts:
        total[: len(each)] += each
    dictionary = Dictionary()
    for symbol, number in symbols.items():
        if total[number]:
            dictionary.add_symbol(symbol, int(total[number]))
    dictionary.finalize(padding_factor=8)
    return dictionary


def write(encoded: Encoded, symbols: Symbols, dictionary: Any, *prefixes: Path) -> int:
    """Write `prefix`.bin and .idx, and remove the preliminary numbers.

    Several prefixes get texts by turns, so that their data is alike.

    Returns:
        how many numbers the dictionary lacks.
    """
    from fairseq.data.indexed_dataset import best_fitting_int_dtype

    kind = best_fitting_int_dtype(len(dictionary))
    table = np.fromiter(map(dictionary.index, symbols), kind, len(symbols))
    sizes, unknown = encoded.sizes + np.int32(1), 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(encoded.path, "rb"))
        outs = []
        for prefix in prefixes:
            prefix.parent.mkdir(parents=True, exist_ok=True)
            outs.append(stack.enter_context(open(f"{prefix}.bin", "wb")))
        for start in range(0, len(sizes), BATCH):
            ends = np.cumsum(encoded.sizes[start : start + BATCH])
            found = table[np.fromfile(file, np.int32, ends[-1])]
            unknown += int((found == dictionary.unk()).sum())
            found = np.insert(found, ends, dictionary.eos())
            turns = np.arange(start, start + len(ends), dtype=np.int32) % len(outs)
            turns = np.repeat(turns, sizes[start : start + BATCH])
            for turn, out in enumerate(outs):
                out.write(found[turns == turn].tobytes())
    for turn, prefix in enumerate(prefixes):
        _write_index(prefix, sizes[turn :: len(prefixes)], table.dtype)
    encoded.path.unlink()
    return unknown


def _write_index(prefix: Path, sizes: np.ndarray, kind: np.dtype) -> None:
    """Write `prefix`.idx of texts with so many tokens (int32), with their end symbols."""
    from fairseq.data.indexed_dataset import _dtype_header_code

    pointers = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=pointers[1:])
    code = _dtype_header_code(kind.type)
    with open(f"{prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQ", 1, code, len(sizes)))
        index.write(sizes.tobytes())
        index.write((pointers * kind.itemsize).tobytes())


def concatenate(sources: Sequence[Path], prefix: Path, table: np.ndarray | None = None) -> int:
    """Write `prefix`.bin and .idx: the data of `sources`, in order.

    Args:
        sources, prefix: without .bin and .idx.
        table: `table[n]` replaces each number n; None: all stay.

    Returns:
        how many texts there are.

    Raises:
        ConfigurationError: a source is not of --dataset-impl mmap.
    """
    from fairseq.data.indexed_dataset import MMapIndexedDataset, infer_dataset_impl

    sizes = []
    with open(f"{prefix}.bin", "wb") as out:
        for source in sources:
            if infer_dataset_impl(str(source)) != "mmap":
                raise ConfigurationError(f"{source}.idx is not of fairseq's --dataset-impl mmap")
            index = MMapIndexedDataset.Index(f"{source}.idx")
            sizes.append(np.array(index.sizes))
            with open(f"{source}.bin", "rb") as file:
                while len(found := np.fromfile(file, index.dtype, CHARACTERS)):
                    out.write((found if table is None else table[found]).tobytes())
    kind = np.dtype(index.dtype) if table is None else table.dtype
    _write_index(prefix, np.concatenate(sizes), kind)
    return sum(map(len, sizes))


def binarise_words(texts: dict[str, Path], prefix: str, dictionary: Path) -> dict[str, int]:
    """Write binary data of texts whose words spaces separate, and the dictionary of train.

    Args:
        texts: the text of each split, with train.
        prefix: the files to write, such as `data/{split}.de-en.de`.
        dictionary: the file for the dictionary.

    Returns:
        how many words of each split the dictionary lacks.
    """
    words, path = Words(), Path(f"{dictionary}.numbers")
    encoded = {
        split: encode(read_lines(text), Encoder(words), path.with_suffix(f".{split}"))
        for split, text in texts.items()
    }
    built = build_dictionary(words.symbols, [encoded["train"].counts])
    built.save(str(dictionary))
    return {
        split: write(each, words.symbols, built, Path(prefix.format(split=split)))
        for split, each in encoded.items()
    }
