"""The search for the best hypotheses, with torch or onnxruntime."""
