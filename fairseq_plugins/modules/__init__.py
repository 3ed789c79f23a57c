"""Building blocks: each takes the few numbers it needs and knows nothing of command lines."""
