"""Optimizers beside AdamW, and the choice among them by name."""
