"""Captured CUDA graphs: training steps, flat tensors of an optimizer."""
