"""ELMo (Peters et al. 2018): words as characters, read by two directions of LSTMs."""
