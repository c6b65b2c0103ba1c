"""Cheap models fitted beside an expensive one: the scores that a fine-tuned model must beat."""
