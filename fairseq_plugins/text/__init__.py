"""From raw text to subwords and back: tokens, subwords, sentences, languages.

This file imports none of its modules: some load a library that takes a while.
"""
