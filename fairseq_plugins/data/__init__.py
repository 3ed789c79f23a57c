"""From raw text to the datasets that models are trained on."""
