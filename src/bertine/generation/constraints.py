"""What may come next: tokens that are never written, runs that must not come twice, lengths.

Shape legend: R rows, V vocabulary size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bertine.generation.settings import SearchSettings

_NEVER = float("-inf")


class Constraints:
    """The rules of a search, which make scores -inf where a token may not come.

    Args:
        settings: of the search.
        device: of the scores.
    """

    def __init__(self, settings: SearchSettings, device: torch.device) -> None:
        self._settings, self._choosing = settings, settings.choosing
        self._ends = torch.tensor(settings.end_tokens, dtype=torch.int64, device=device)
        never = sorted(settings.never)
        self._banned = torch.tensor(never, dtype=torch.int64, device=device)

    def apply(self, scores: Tensor, histories: Sequence[Sequence[int]], step: int) -> Tensor:
        """Return `scores` [R, V] with -inf at what may not come; they may be changed.

        Args:
            histories: R sequences of tokens, the prompts' included.
            step: how many tokens each has behind its prompt.
        """
        settings, choosing = self._settings, self._choosing
        if step == 0 and settings.first_token is not None:
            return _only(scores, settings.first_token)
        if settings.ends_at_limit and settings.end_tokens and step == choosing.max_new_tokens - 1:
            return _only(scores, settings.end_tokens[0])
        if len(self._banned):
            scores.index_fill_(1, self._banned, _NEVER)
        if step < choosing.min_new_tokens and len(self._ends):
            scores.index_fill_(1, self._ends, _NEVER)
        size = choosing.no_repeat_ngram_size
        if size:
            for row, history in enumerate(histories):
                found = last_of_repeated(history, size)
                if len(found):
                    scores[row, torch.from_numpy(found).to(scores.device)] = _NEVER
        return scores


def _only(scores: Tensor, token: int) -> Tensor:
    forced = torch.full_like(scores, _NEVER)
    forced[:, token] = 0.0
    return forced


def last_of_repeated(history: Sequence[int], size: int) -> np.ndarray:
    """Return the tokens that would make the last `size` tokens of a history a run that it has
    already: int64, one may be there twice."""
    ids = np.asarray(history, np.int64)
    if len(ids) < size:
        return ids[:0]
    windows = np.lib.stride_tricks.sliding_window_view(ids, size)
    same = (windows[:, :-1] == ids[len(ids) + 1 - size :]).all(1)
    return windows[same, -1]
