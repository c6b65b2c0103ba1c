"""Texts that a model writes: which models do, the texts of a search, ``generate``."""
