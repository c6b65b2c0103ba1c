"""Other people's files: weights and configurations under the names they have elsewhere."""
