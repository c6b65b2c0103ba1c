"""Score minimal pairs: pairs of a right and a wrong sentence, judged by a language model's
probability.

The method is that of BLiMP (Warstadt et al. 2020).
"""
