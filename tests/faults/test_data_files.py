"""Missing, truncated or empty prepared data is an error that names the file and a remedy."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.data import Dictionary
from fairseq.data.data_utils import load_indexed_dataset
from fairseq.data.huffman import HuffmanCodeBuilder, HuffmanMMapIndexedDatasetBuilder
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_plugins.data.prepared_folder import RECORD
from fairseq_plugins.errors import ConfigurationError
from tests.conftest import ROOT, binarise, load, updates

SIDES = ("src", "tgt")


@pytest.fixture
def data(corpus, tmp_path):
    return Path(shutil.copytree(corpus.bin, tmp_path / "data"))


@pytest.fixture
def words(data, train_args, tmp_path):
    return [data, *train_args, "--max-update", 1, "--save-dir", tmp_path / "run"]


@pytest.fixture(scope="module")
def model(corpus, train_args, tmp_path_factory, run_train):
    folder = tmp_path_factory.mktemp("model")
    run_train(corpus.bin, *train_args, "--max-update", 1, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def empty(path):
    path.write_bytes(b"")


def refused(run, *words):
    with pytest.raises(ConfigurationError) as error:
        run(*words)
    assert "\n" not in str(error.value)
    return str(error.value)


def read(data):
    """What every command does first."""
    task = TranslationTask.setup_task(
        TranslationConfig(
            data=str(data), dataset_impl=None, train_subset="train", required_seq_len_multiple=1
        )
    )
    for split in ("train", "valid", "test"):
        task.load_dataset(split)


@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
def test_each_file(damage, corpus, tmp_path):
    names = sorted(path.name for path in corpus.bin.iterdir() if path.suffix != ".log")
    assert len(names) == 2 + 3 * 2 * 2
    for name in names:
        data = Path(shutil.copytree(corpus.bin, tmp_path / name))
        read(data)
        damage(data / name)
        message = refused(read, data)
        assert str(data / name) in message
        assert f"remove {data} and run fairseq-preprocess again" in message
        assert str(data / "preprocess.log") in message


@pytest.mark.parametrize("count", [2**40, 2**62 + 2, 2**63 + 2])
def test_a_number_of_sentences_that_the_file_cannot_hold(count, data):
    path = data / "valid.src-tgt.src.idx"
    content = bytearray(path.read_bytes())
    content[18:26] = count.to_bytes(8, "little")
    path.write_bytes(bytes(content))
    assert f"{path} is cut short" in refused(read, data)


def test_training_and_generation(data, words, model, run_train, run_generate):
    path = data / "test.src-tgt.src.bin"
    cut(path)
    assert f"{path} is cut short" in refused(run_generate, data, "--path", model)
    path = data / "train.src-tgt.tgt.idx"
    cut(path)
    assert f"{path} is cut short" in refused(run_train, *words)
    assert not (words[-1] / "checkpoint_last.pt").exists()


def test_dictionary_cut_between_two_lines(data, words, model, run_train, run_generate):
    words_of = (data / "dict.tgt.txt").read_text().splitlines(keepends=True)
    (data / "dict.tgt.txt").write_text("".join(words_of[: len(words_of) // 2]))
    message = refused(run_train, *words)
    assert str(data / "dict.tgt.txt") in message and "the dictionary was cut" in message
    message = refused(run_generate, data, "--path", model, "--gen-subset", "valid")
    assert "does not fit: its decoder.embed_tokens" in message


def test_text_without_a_line(corpus, tmp_path, words, run_train):
    for name in ("train.src", "train.tgt", "valid.src", "valid.tgt"):
        empty(tmp_path / name)
    known = ["--srcdict", corpus.bin / "dict.src.txt", "--tgtdict", corpus.bin / "dict.tgt.txt"]
    binarise(tmp_path, tmp_path / "prepared", *known, languages=SIDES)
    message = refused(run_train, tmp_path / "prepared", *words[1:])
    assert re.search(r"\w+\.src-tgt\.src\.bin is empty, as was the text it was ma.*: ", message)


OTHER_MODELS = r"""
--encoder-ffn-embed-dim 24 --restore-file -> 0\.fc1\.weight is of size 32, 16, not 24
--decoder-layers 3 --restore-file -> it has no decoder\.layers\.\d\.\S+; give the opt
--encoder-normalize-before --finetune-from-model -> it has no encoder.layer_norm.wei
--encoder-layers 1 --restore-file -> the model has no encoder\.layers\.1\.\S+; give
"""


@pytest.mark.parametrize(
    "line",
    [
        line if "--encoder-ffn" in line else pytest.param(line, marks=pytest.mark.slow)
        for line in OTHER_MODELS.strip().splitlines()
    ],
)
def test_a_model_of_another_architecture(model, words, run_train, line):
    given, _, told = line.partition(" -> ")
    message = refused(run_train, *words, *given.split(), model)
    assert re.search(told, message) and "dict." not in message


def test_index_with_zeroed_bytes(data, words, run_train):
    path = data / "train.src-tgt.src.idx"
    content = bytearray(path.read_bytes())
    content[100:140] = bytes(40)
    path.write_bytes(content)
    assert f"{path} is damaged" in refused(run_train, *words)


def test_both_files_of_the_target_missing(data, words, model, run_train, run_generate):
    for path in data.glob("*.src-tgt.tgt.*"):
        path.unlink()
    message = refused(run_train, *words)
    assert str(data / "valid.src-tgt.tgt.idx") in message or "train.src-tgt.tgt.idx" in message
    output = run_generate(data, "--path", model, "--max-len-b", 3).output
    assert output.count("\nD-") == 5  # sources are enough here


def test_missing_subset_and_folder(data, words, model, tmp_path, run_train, run_generate):
    message = refused(run_generate, data, "--path", model, "--gen-subset", "other")
    assert f"{data} has no other.src-tgt.src.idx" in message
    message = refused(run_train, tmp_path / "nowhere", *words[1:])
    assert f"DATA {tmp_path / 'nowhere'}: no such folder" in message
    (tmp_path / "bare").mkdir()
    message = refused(run_train, tmp_path / "bare", *words[1:])
    assert f"DATA {tmp_path / 'bare'} has no prepared data" in message


def test_a_prepared_folder_names_its_own_command(data, words, run_train):
    (data / RECORD).write_text("{}")
    cut(data / "train.src-tgt.src.bin")
    assert f"remove {data} and run the prepare-* command" in refused(run_train, *words)


def test_good_data_of_every_format_is_read(corpus, tmp_path, words, run_train):
    """Also the formats that are not checked."""
    for kind in ("lazy", "raw"):
        folder = binarise(corpus.raw, tmp_path / kind, "--dataset-impl", kind, languages=SIDES)
        run_train(folder, *words[1:], "--dataset-impl", kind, "--save-dir", folder / "run")
        assert updates(load(folder / "run")) == 1


@pytest.mark.slow
def test_hostile_files_of_every_format_end_in_one_line(corpus, data, tmp_path):
    """In another process, as reading outside a file would end it by a signal."""
    folders = [data, tmp_path / "lazy", tmp_path / "huffman"]
    binarise(corpus.raw, tmp_path / "lazy", "--dataset-impl", "lazy", languages=SIDES)
    write_huffman(data, tmp_path / "huffman")
    command = [sys.executable, "-W", "ignore", "-c", HOSTILE, *map(str, folders)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("rejected") == len(folders)


def write_huffman(data, folder):
    folder.mkdir()
    dictionary = Dictionary.load(str(data / "dict.src.txt"))
    shutil.copy(data / "dict.src.txt", folder)
    builder = HuffmanCodeBuilder()
    lines = [
        [dictionary[token] for token in sentence]
        for sentence in load_indexed_dataset(str(data / "train.src-tgt.src"), dictionary)
    ]
    for line in lines:
        builder.add_symbols(*line)
    with HuffmanMMapIndexedDatasetBuilder(
        str(folder / "train.src-tgt.src"), builder.build_code()
    ) as written:
        for line in lines:
            written.add_item(line)


HOSTILE = """
import random, sys
from pathlib import Path
from fairseq_plugins import compat
compat.apply()
from fairseq.data import Dictionary, data_utils
from fairseq_plugins.errors import ConfigurationError
for folder in map(Path, sys.argv[1:]):
    kind = "lazy" if folder.name == "lazy" else None  # otherwise it must be told what to read
    rejected, prefix = 0, folder / "train.src-tgt.src"
    dictionary = Dictionary.load(str(folder / "dict.src.txt"))
    assert len(data_utils.load_indexed_dataset(str(prefix), dictionary, kind)) > 1
    for seed in range(120):
        number = random.Random(seed)
        path = Path(str(prefix) + number.choice([".idx", ".idx", ".bin"]))
        before = path.read_bytes()
        content, begin = bytearray(before), number.choice([9, 26, 60, len(before)])
        at = number.randrange(min(begin, len(before)))
        length = number.choice([1, 4, 8])
        content[at : at + length] = number.choice([number.randbytes(length), b"\\xff" * length])
        path.write_bytes(content)
        try:
            dataset = data_utils.load_indexed_dataset(str(prefix), dictionary, kind)
            if folder.name != "huffman":  # fairseq does not decode it with current bitarray
                for index in range(len(dataset)):
                    assert 0 <= int(dataset[index].min()) <= int(dataset[index].max())
                    assert int(dataset[index].max()) < len(dictionary)
        except ConfigurationError as error:
            assert "\\n" not in str(error)
            rejected += 1
        path.write_bytes(before)
    assert rejected > 40, rejected
    print(folder, "rejected", rejected)
"""
