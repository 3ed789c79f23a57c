__version__ = "0.2.0.dev0"  # until 0.2.0 is released, see CHANGELOG.md
