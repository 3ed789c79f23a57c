"""A synchronous grammar of German and English; `make_grammar_corpus.py` draws from it."""
