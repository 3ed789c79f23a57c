"""Options of the criterions reach them."""

import dataclasses
import inspect

import pytest
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY

import fairseq_plugins  # noqa: F401 registers them

OURS = [
    name for name, kind in CRITERION_REGISTRY.items() if kind.__module__.startswith("fairseq_plug")
]


@pytest.mark.parametrize("name", OURS)
def test_every_option_is_a_parameter_of_the_constructor(name):
    """fairseq hands over what the constructor names, and drops the rest in silence."""
    options = {field.name for field in dataclasses.fields(CRITERION_DATACLASS_REGISTRY[name])}
    taken = inspect.signature(CRITERION_REGISTRY[name].__init__).parameters
    assert options - {"_name"} <= set(taken)


def test_all_three_are_there():
    assert {name.split("_")[-1] for name in OURS} >= {"fused", "rdrop", "simcut"}
