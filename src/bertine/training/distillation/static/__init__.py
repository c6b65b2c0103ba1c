"""Make a table of static vectors out of a model: its pieces through the model, principal
components, weights, and learning from its vectors of texts."""
