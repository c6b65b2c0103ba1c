"""Show what pre-training is worth, in a few minutes, on bundled texts: ``bertine demo``."""
