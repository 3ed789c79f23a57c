"""Options with defaults, choices and ranges: of command lines, and as fields of dataclasses."""
