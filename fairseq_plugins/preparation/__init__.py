"""Prepare raw text for fairseq-train: download, clean, tokenise, cut into subwords, binarise.

Each step is a module. This file imports none of them.
"""
