"""How good a trained model is: averaged checkpoints, scores, comparisons, baselines."""
