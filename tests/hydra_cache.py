"""Keep what hydra composes of fairseq's defaults: without this, half of each command's time.

A command inside this process gives hydra some 250 values, and hydra parses each and composes all
defaults anew. Here the defaults of each choice of task, model, ... are composed once, and hydra
sets the values in a copy of them, in the same order and with the same errors.
"""

import copy
import functools
import inspect
from types import SimpleNamespace
from typing import Any

import hydra._internal.utils
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import open_dict

_compose = ConfigLoaderImpl._load_configuration_impl
_store = ConfigStore.store
_defaults: dict[tuple, Any] = {}


@functools.cache
def _parse(line: str) -> Any:
    return OverridesParser.create().parse_overrides([line])


def _load(self, config_name, overrides, run_mode, from_shell=True, **given):
    if from_shell:  # fairseq-hydra-train
        return _compose(self, config_name, overrides, run_mode, from_shell, **given)
    groups = tuple(line for line in overrides if "." not in line.partition("=")[0])
    key = config_name, groups, str(self.config_search_path)
    if key not in _defaults:
        _defaults[key] = _compose(self, config_name, [*groups], run_mode, from_shell, **given)
        with open_dict(_defaults[key]) as defaults:
            del defaults["hydra"]
    config = copy.deepcopy(_defaults[key])
    for line in overrides:
        if line not in groups:
            ConfigLoaderImpl._apply_overrides_to_config(_parse(line), config)
    return config


def _store_anew(*args: Any, **kwargs: Any) -> None:
    _defaults.clear()
    _store(*args, **kwargs)


ConfigLoaderImpl._load_configuration_impl = _load
ConfigStore.store = _store_anew
# hydra copies all defaults for a reader that copies what it reads
ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]
# nor does it need the source around each caller to find which folder its caller is in
hydra._internal.utils.inspect = SimpleNamespace(stack=functools.partial(inspect.stack, context=0))
