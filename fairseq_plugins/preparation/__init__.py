"""From raw text to the folder that fairseq-train reads: download, clean, tokenise, cut, binarise.

This file imports nothing; each step is its own module.
"""
