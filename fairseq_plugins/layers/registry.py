"""Registries of the parts that `--encoder-token-mixer` and `--encoder-ffn` choose from."""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence  # fmt: skip
from dataclasses import Field, dataclass
from typing import Any, NamedTuple, TypeVar

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from torch import nn

from fairseq_plugins.errors import check_choice
from fairseq_plugins.options.fields import checked_options, options_of

Registered = TypeVar("Registered", bound=type[nn.Module])


class Part(nn.Module):
    """What token mixers and feed-forward networks have in common."""

    @classmethod
    def complete(cls, options: Any, specs: Sequence[Any]) -> Any:
        """Check the options for all layers with this part, and fill in missing ones.

        Args:
            options: those of the part.
            specs: the MixerSpec or FeedForwardSpec of each layer.

        Returns:
            the completed options.

        Raises:
            ConfigurationError: the options cannot work; one line names the option and its value.
        """
        return options


@dataclass
class NoOptions(FairseqDataclass):
    """Options of a part without options."""


class Choice(NamedTuple):
    """A part and the values of its options."""

    name: str
    part: Any  # the class
    options: Any

    def build(self, spec: Any) -> nn.Module:
        """Build the part for one layer, given its MixerSpec or FeedForwardSpec."""
        return self.part(spec, self.options)

    def completed(self, specs: Sequence[Any]) -> "Choice":
        """The same with the options that `Part.complete` returns for layers of these specs."""
        return self._replace(options=self.part.complete(self.options, specs))

    def store(self, args: Any) -> None:
        """Write the options back to the arguments that `Registry.choose` read."""
        for field in options_of(type(self.options)):
            setattr(args, f"{self.name}_{field.name}", getattr(self.options, field.name))


class Registry:
    """Parts of one kind by name, each with a dataclass for its options.

    A field `width` of a part named `wide` is `--wide-width` on a command line and `wide_width` in
    a YAML file.

    Args:
        kind: name of these parts in messages.
        default: name of the Transformer's part.
    """

    def __init__(self, kind: str, default: str):
        self.kind = kind
        self.default = default
        self._parts: dict[str, tuple[type[nn.Module], type[FairseqDataclass]]] = {}

    def register(
        self, name: str, options: type[FairseqDataclass] = NoOptions
    ) -> Callable[[Registered], Registered]:
        """Decorator that registers a part's class; its constructor takes a spec and the options."""

        def add(part: Registered) -> Registered:
            self._parts[name] = (part, options)
            return part

        return add

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def choose(self, option: str, args: Any) -> Choice:
        """The part that an option such as `encoder_token_mixer` names, with its options.

        Raises:
            ConfigurationError: no part has that name, in which case the message lists all names; or
                an option of the part is out of range.
        """
        name = str(getattr(args, option))
        check_choice(option, name, self)
        part, options = self._parts[name]
        return Choice(name, part, options(**checked_options(options, args, f"{name}_")))

    def options(self) -> Iterator[tuple[str, Field]]:
        """Yield the full name and the dataclass field of every option of every part."""
        for name, (_, options) in self._parts.items():
            for field in options_of(options):
                yield f"{name}_{field.name}", field

    def idle(self, chosen: Sequence[str], args: Any, defaults: Any) -> list[tuple[str, str]]:
        """Options with non-default values whose part no layer has.

        Args:
            chosen: the names of the parts that layers have.
            defaults: the options of the architecture.

        Returns:
            the name of each option and of its part.
        """
        return [
            (option, name)
            for name, (_, options) in self._parts.items()
            for option in (f"{name}_{field.name}" for field in options_of(options))
            if name not in chosen and str(getattr(args, option)) != str(getattr(defaults, option))
        ]

    def add_options(self, parser: ArgumentParser) -> None:
        """Add the options of all parts to a command line."""
        for name, (_, options) in self._parts.items():
            prefix = "--" + name.replace("_", "-")
            gen_parser_from_dataclass(parser, options(), delete_default=True, with_prefix=prefix)
