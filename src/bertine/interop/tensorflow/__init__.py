"""Checkpoints of TensorFlow 1, as Google's programs write them, read without TensorFlow."""
