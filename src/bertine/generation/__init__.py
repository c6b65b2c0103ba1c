"""The search for a text, token by token: greedy, sampled, or with beams. It knows no model:
:class:`bertine.generation.scores.NextTokens` is all that one has to be."""
