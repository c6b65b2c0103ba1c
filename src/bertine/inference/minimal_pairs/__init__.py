"""Minimal pairs: two sentences of which one is right, judged by what a language model finds more
probable (Warstadt et al. 2020, BLiMP)."""
