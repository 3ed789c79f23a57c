__version__ = "1.0.0.dev0"  # until 1.0.0 is released, see CHANGELOG.md
