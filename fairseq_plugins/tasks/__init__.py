"""Tasks that fairseq lacks. fairseq imports the modules of this folder by itself."""
