"""torch.compile for training on a GPU: of the parts that come again, not of the whole.

All encoder layers share one piece of compiled code, made twice at most for each way they are
called (with the shapes as they come first, then with the number of rows left open), and batches
of any size compile nothing more. Where PyTorch meets more ways than :data:`_WAYS`, it computes
the rest as without compiling.
"""

from __future__ import annotations

import os
import shutil

from bertine.models import losses
from bertine.models.causal.recurrent import RecurrentLayer
from bertine.models.fast.torch_private import allow_recompilations
from bertine.models.heads import GuessesWords
from bertine.models.model import Model
from bertine.terminal.console import say

#: Ways to call a part that are compiled: training and evaluation, with padding and without.
_WAYS = 16


def compile_parts(model: Model) -> None:
    """Compile the encoder layers of `model` (in place), its heads that guess words, and the
    cross-entropy; each when it is first called. State dicts and copies of the model stay as they
    are. Without a C compiler, which torch.compile calls, say so and compile nothing."""
    if not any(map(shutil.which, (os.environ.get("CC", ""), "clang", "gcc"))):
        say("no C compiler (gcc or clang): the model is not compiled, and trains more slowly")
        return
    allow_recompilations(_WAYS)
    for layer in model.backbone.layers:
        # The steps of recurrent ones are as many as a batch has: each would be code of its own.
        if not isinstance(layer, RecurrentLayer):
            layer.compile()
    for head in model.heads.values():
        if isinstance(head, GuessesWords):
            head.compile()
    losses.compile_cross_entropy()
