"""Fit cheap baselines: scores that a fine-tuned model must beat."""
