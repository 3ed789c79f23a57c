"""Commands of the laboratory, which `fairseq-plugins` finds by their files' names."""
