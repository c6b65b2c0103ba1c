"""Show the gain from pre-training, in a few minutes, on bundled texts: ``bertine demo``."""
