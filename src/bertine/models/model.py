"""A model is a backbone and the heads that an objective or task asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bertine.models.backbone import Backbone
from bertine.models.config import Config
from bertine.models.encoded import Encoded, Inputs
from bertine.models.precision import finite


class Model(nn.Module):
    """A backbone with named heads.

    Objectives and tasks say how the heads are used; the model only holds the parts, so that one
    state dict, one optimizer and one checkpoint cover them. :meth:`encode` is the only way into
    the backbone and :meth:`read` the only way out.

    Args:
        config: of the backbone.
        heads: by name, of ``config.heads``.
        add_pooler: whether the backbone has a pooler; None: if models with these heads have.

    Attributes:
        config: of the backbone.
        backbone: what turns ids into states.
        heads: by name: "mlm", "nsp", "classifier", …
    """

    config: Config
    backbone: Backbone

    def __init__(
        self, config: Config, heads: Mapping[str, nn.Module], add_pooler: bool | None = None
    ) -> None:
        super().__init__()
        self.config = config
        if add_pooler is None:
            add_pooler = config.needs_pooler(heads)
        self.backbone = config.new_backbone(add_pooler)
        self.heads = nn.ModuleDict(dict(heads))

    def encode(
        self,
        inputs: Inputs,
        *,
        all_states: bool = False,
        word_vectors: Tensor | None = None,
        target: Inputs | None = None,
    ) -> Encoded:
        """Run the backbone on a batch.

        Args:
            inputs: ids, mask, types and packing; see :class:`bertine.models.encoded.TextInputs`.
            all_states: also return the output of every layer.
            word_vectors: [B, T, E], read in place of the word embeddings of the ids; for batches
                without padding.
            target: what the decoder reads, of a model that has one; None: the inputs.
        """
        options: dict[str, Any] = {}
        if inputs.packing is not None:  # packed layers, which answer on a CPU, take none
            options["packing"] = inputs.packing
        if word_vectors is not None:
            options["word_vectors"] = word_vectors
        if target is not None:
            options["target"] = target
        encoded: Encoded = self.backbone(
            inputs.input_ids,
            inputs.attention_mask,
            inputs.token_type_ids,
            output_hidden_states=all_states,
            **options,
        )
        return encoded

    def read(
        self,
        head: str,
        encoded: Encoded,
        *,
        places: Tensor | None = None,
        texts: Inputs | None = None,
        fp32: bool = False,
    ) -> Tensor:
        """Run a head on an encoded batch.

        Args:
            head: its name.
            encoded: what :meth:`encode` returned.
            places: int64 [P], indices among the B * T tokens, for a head that reads rows.
            texts: what was encoded, for a head that reads a text or texts.
            fp32: compute the head in fp32, where bf16 would have three digits.

        Returns:
            Logits: [P, V] of rows, [B, K] of what is pooled and of a text, [B, T, K] of tokens,
            [B / 2, K] of texts.
        """
        kind, module = self.config.heads[head], self.heads[head]
        logits: Tensor
        if kind.reads in ("text", "texts"):
            logits = module(encoded, texts)
            return logits
        if kind.reads == "rows":
            assert places is not None, f"the head {head} reads the states at places"
            states: Tensor | None = encoded.rows(places)
        elif kind.reads == "pooled":
            states = encoded.pooler_output
        elif kind.reads == "first":
            states = encoded.first_token
        else:
            states = encoded.last_hidden_state
        assert states is not None, f"the head {head} needs a pooler"
        if kind.tied:
            logits = module(states, self.backbone.word_weights)
        elif fp32:
            with torch.autocast(states.device.type, enabled=False):
                logits = module(states.float())
        else:
            logits = module(states)
        return logits

    def next_scores(self, states: Tensor) -> Tensor:
        """Score the next token by the states before it, [R, H] → [R, V], with the head that the
        config says texts are written with.

        Raises:
            BertineError: a score is not finite.
        """
        name = self.config.writes_with
        module, tied = self.heads[name], self.config.heads[name].tied
        return finite(module(states, self.backbone.word_weights) if tied else module(states))

    def missing_partners(self) -> list[str]:
        """List the heads that others of this model were trained beside and that it lacks, since
        they are not written with it (:attr:`bertine.models.heads.HeadKind.partner`)."""
        partners = [self.config.heads[name].partner for name in self.heads]
        return [name for name in partners if name and name not in self.heads]

    def fingerprint(self) -> str:
        """Return the SHA-256 of all weights, as hex digits: what a run began with."""
        return weights_fingerprint(self)

    def num_parameters(self) -> int:
        """Count the parameters, the tied decoder once."""
        return sum(p.numel() for p in self.parameters())


def weights_fingerprint(module: nn.Module) -> str:
    """Return the SHA-256 of the weights of `module` and their names, as hex digits."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
