"""Training ELMo: a language model forwards and one backwards, over words.

A room of its own beside pre-training on a token store: that store holds pieces and not words, its
batches are sequences that stand alone and not windows whose state goes on, and its objectives read
heads over one encoder. Runs, their folders and checkpoints are the same.
"""
