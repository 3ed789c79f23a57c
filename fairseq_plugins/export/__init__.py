"""Exports a trained model to a folder that `search.onnx_backend` runs without torch and fairseq."""

from .exporter import export, export_to_ctranslate2

__all__ = ["export", "export_to_ctranslate2"]
