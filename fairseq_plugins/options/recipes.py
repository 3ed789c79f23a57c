"""Recipes: YAML files for fairseq-hydra-train, converted here to options of fairseq-train.

A recipe has fairseq's groups (`task`, `model`, `optimization`, ...) with their options; `_name`
chooses the task, the architecture, and so on. Files listed under `defaults:` are read first: one
beside the recipe, or else the package's of that name. The package's recipes are in
`fairseq_plugins/recipes/TASK`, settings to add to them in `TASK/settings`; both are found by name.
"""

import contextlib
import datetime
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from fairseq_plugins.errors import ConfigurationError, did_you_mean, flag

FOLDER = Path(__file__).resolve().parent.parent / "recipes"
SETTINGS = "settings"  # the folder beside recipes that has settings
# the option of fairseq-train for a group's `_name`, where it is not the group's name
CHOICES = {"model": "arch"}
# options that are on by default: their flag on the command line turns them off
ON_BY_DEFAULT = {"left_pad_source"}
# other names of fairseq's options on the command line
ALIASES = {
    "a": "arch", "s": "source_lang", "t": "target_lang", "remove_bpe": "post_process",
    "max_sentences": "batch_size", "max_sentences_valid": "batch_size_valid",
    "combine_val": "combine_valid_subsets", "nval": "max_valid_steps", "local_rank": "device_id",
    "save_async": "write_checkpoints_asynchronously",
}  # fmt: skip
LARGEST = 100_000  # characters of a YAML file, with each alias counted as what it stands for


class _BoundedLoader(yaml.SafeLoader):
    """Rejects names that are given twice, of which PyYAML takes the last one.

    It also rejects files that are larger than `LARGEST` once their aliases (``*name``) are
    replaced.
    """

    def __init__(self, stream: str):
        super().__init__(stream)
        self._sizes: dict[int, int] = {}  # of nodes, by their id

    def compose_node(self, parent: Any, index: Any) -> Any:
        node: Any = super().compose_node(parent, index)
        if id(node) not in self._sizes:  # not an alias, or an alias within what it stands for
            value = node.value
            if isinstance(node, yaml.MappingNode):
                names = Counter(key.value for key, _ in value if isinstance(key, yaml.ScalarNode))
                for name, count in names.most_common(1):
                    if count > 1:
                        raise yaml.YAMLError(f"it gives {name} {count} times: remove all but one")
                value = [part for pair in value for part in pair]
            parts = map(self._size, value) if isinstance(value, list) else [len(value)]
            self._sizes[id(node)] = 1 + sum(parts)
        if self._size(node) > LARGEST:
            raise yaml.YAMLError(f"it has more than {LARGEST:,} characters, aliases included")
        return node

    def _size(self, node: Any) -> int:
        return self._sizes[id(node)]


def names() -> list[str]:
    """The names of the package's recipes; broken files are skipped."""
    known = []
    for path in FOLDER.glob("*/*.yaml"):
        with contextlib.suppress(ConfigurationError):
            known += [path.stem] if "arch" in read(path) else []
    return sorted(known)


def find(name: str | Path, beside: Sequence[Path] = ()) -> Path:
    """A recipe or settings file: a path, or the name of one in `beside` or in the package.

    Raises:
        ConfigurationError: it does not exist.
    """
    path = Path(name)
    if os.path.isfile(path):  # also false for a name that no file can have
        return path
    known_path = _look_up(name, beside) if path.name == str(name) else None
    if known_path is not None:
        return known_path
    if os.path.isdir(path):
        raise ConfigurationError(
            f"{name} is a folder: give a recipe or settings, such as transformer_ftc"
        )
    known = {path.stem for folder in _places(beside) for path in folder.glob("*.yaml")}
    known_recipes = set(names())
    both = ("recipes", known & known_recipes), ("settings", known - known_recipes)
    lists = "; ".join(f"{what} are {', '.join(sorted(those))}" for what, those in both)
    advice = did_you_mean(name, sorted(known), lists, most=2)
    raise ConfigurationError(
        f"{name}: no such file, and no recipe or settings of that name; {advice}"
    )


def _look_up(name: Any, beside: Sequence[Path]) -> Path | None:
    """The YAML file of a name in `beside` or in the package, or None."""
    for folder in _places(beside):
        path = folder / f"{name}.yaml"
        if os.path.isfile(path):
            return path
    return None


def _places(beside: Sequence[Path]) -> Iterator[Path]:
    """Where names are looked up: these folders, then those of the package, with their settings."""
    for folder in (*beside, *sorted(FOLDER.iterdir())):
        yield from (folder, folder / SETTINGS)


def folders(recipe: Path) -> list[Path]:
    """Folders that settings names refer to: the recipe's own, and the package's for its task.

    Raises:
        ConfigurationError: the recipe cannot be read.
    """
    task = merge([recipe]).get("task", "translation")  # fairseq's default
    word = task[-1].split("=")[-1] if isinstance(task, tuple) else str(task)
    own = FOLDER / word.split("_")[0]  # translation of translation_sampled
    return [recipe.parent, own] if own.is_dir() else [recipe.parent]


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _BoundedLoader)
    except Exception as error:  # also those of int, float and datetime, which PyYAML calls
        told = getattr(error, "strerror", None) or str(error)
        reason = " ".join(told.split()) or type(error).__name__
        raise ConfigurationError(f"{path} cannot be read: {reason}") from None


def read(path: Path, of: Sequence[Path] = ()) -> dict[str, Any]:
    """The options of a YAML file and of its `defaults`, by the names of the command line.

    Args:
        path: the file.
        of: the files that have it among their defaults.

    Raises:
        ConfigurationError: the file cannot be read, is not a mapping of groups, is among its own
            `defaults`, or overrides an option of its defaults: hydra and fairseq-train would choose
            differently.
    """
    if path in of:
        raise ConfigurationError(f"{path} is among its own defaults: remove it there")
    groups = read_yaml(path) or {}
    if not isinstance(groups, dict) or not isinstance(groups.get("defaults", []), list):
        raise ConfigurationError(f"{path}: give groups of options, such as 'optimization:'")
    options: dict[str, Any] = {}
    for other in groups.pop("defaults", []):
        if other != "_self_":
            default = _look_up(other, [path.parent])
            if default is None:
                raise ConfigurationError(
                    f"{path}: its default '{other}' is neither {path.parent / f'{other}.yaml'} nor "
                    "a recipe of the package"
                )
            options.update(read(default, [*of, path]))
    for group, values in groups.items():
        if not isinstance(values, dict):
            raise ConfigurationError(f"{path}: {group} is not a group of options")
        for name, value in values.items():
            _check_value(f"{path}: {group}.{name}", value)
            option = CHOICES.get(str(group), str(group)) if name == "_name" else str(name)
            if options.get(option, value) != value:
                raise ConfigurationError(
                    f"{path}: {group}.{name} is {value} here and {options[option]} in its defaults"
                )
            options[option] = value
    return options


def _check_value(name: str, value: Any) -> None:
    """Raise a ConfigurationError unless this is a scalar, or a list of scalars, in YAML."""
    for item in value if isinstance(value, list) else [value]:
        plain = item is None or isinstance(item, (str, int, float, datetime.date))
        if not plain or (isinstance(item, int) and item.bit_length() > 64):
            raise ConfigurationError(
                f"{name} is neither text, a number of at most 64 bits, nor a list of these"
            )


def words(options: dict[str, Any]) -> list[str]:
    """Options as arguments of fairseq's command line.

    null omits an option; a tuple holds its words unchanged.
    """
    line: list[str] = []
    for name, value in options.items():
        option = flag(name)
        if value is None or value == "???" or name == "user_dir":
            continue  # ???: hydra's "give this"; user_dir: see `user_dirs_of`
        if isinstance(value, tuple):
            line += value
        elif isinstance(value, bool):
            line += [option] if value != (name in ON_BY_DEFAULT) else []
        else:
            items = value if isinstance(value, list) else [value]
            line += [option, ",".join(map(str, items))]
    return line


def by_name(command_line: Sequence[str]) -> dict[str, Any]:
    """Options of a command line by their names, each as a tuple of its words.

    >>> by_name(["--bf16", "--lr=1", "-a", "transformer_ftc"])
    {'bf16': ('--bf16',), 'lr': ('--lr=1',), 'arch': ('-a', 'transformer_ftc')}
    """
    options: dict[str, Any] = {}
    name = ""  # for words before the first option, which fairseq refuses
    for word in command_line:
        if re.match("--?[a-zA-Z]", word):  # not a negative number
            name = word.split("=")[0].lstrip("-").replace("-", "_")
            name = ALIASES.get(name, name)
            options.pop(name, None)
        options[name] = (*options.get(name, ()), word)
    return options


def merge(paths: Sequence[Path]) -> dict[str, Any]:
    """The options of several files by name; later files win.

    A file that is not YAML holds options as in a shell, with # for comments. Their values are
    tuples, as `by_name` gives them.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    options: dict[str, Any] = {}
    for path in paths:
        if path.suffix in (".yaml", ".yml"):
            later = read(path)
        else:
            try:
                later = by_name(shlex.split(path.read_text(encoding="utf-8"), comments=True))
            except (OSError, ValueError) as error:
                raise ConfigurationError(
                    f"RECIPE or --settings {path} cannot be read: {error}: give a .yaml file, or "
                    "options as in a shell"
                ) from None
        options.update(later)
    return options


def arguments(paths: Sequence[Path]) -> list[str]:
    """The arguments from several files, as `merge` reads them."""
    return words(merge(paths))
