"""``bertine demo``: from raw text to answers in a few minutes, on the bundled books."""
