"""Measuring models and layers side by side: one subcommand a file, and what they share.

Subcommands: `train_step`, `layer`, `generate`, `memory`, `growth`. Each has
``add_arguments(parser)`` and ``run(args) -> Report``.

Shared: `contenders` builds what is compared from the words of a command line, `modules` does so for
single modules, `workloads` makes either runnable on random input of a given length, `timing`
measures side by side, `operations` counts floating point operations, `peak_memory` measures in
fresh processes, `machine` says where, `results` writes tables and JSON, `plots` draws.
"""
