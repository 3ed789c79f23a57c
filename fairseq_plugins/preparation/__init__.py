"""Prepare raw text for fairseq-train: download, clean, tokenise, cut into subwords, binarise.

Tokens and subwords are those of `text`. This file imports no other module.
"""
