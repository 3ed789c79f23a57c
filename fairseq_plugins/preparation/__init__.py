"""From raw text to the folder that fairseq-train reads: download, clean, tokenise, cut, binarise.

Nothing is imported here: each step is a module of its own.
"""
