"""Run an exported model, without torch and fairseq."""
