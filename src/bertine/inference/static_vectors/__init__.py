"""A table with one vector for each piece of a vocabulary: its files, and texts as means of it."""
