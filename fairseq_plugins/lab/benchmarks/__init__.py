"""Benchmarks of models and layers: one file per subcommand, and the code that they share.

Subcommands: `train_step`, `layer`, `generate`, `memory`, `growth`, `figure2`, `table3`, `goals`.
Each has ``add_arguments(parser)`` and ``run(args) -> Report``.

Shared: `contenders` builds models from the words of a command line, `exports` opens exported
folders, `modules` builds single modules, `workloads` runs models and modules on random input of a
given length, `timing` measures contenders in turn, `operations` counts floating point operations,
`peak_memory` measures within a limit, `machine` describes the device and software, `results`
writes tables and JSON, and `plots` draws.
"""
