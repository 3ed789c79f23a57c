"""Convert raw text to subwords and back: tokens, subwords, sentences, languages.

This file imports no other module here: some load a slow library.
"""
