"""Score language models on minimal pairs: the right sentence should be the more probable one.

The method is that of BLiMP (Warstadt et al. 2020).
"""
