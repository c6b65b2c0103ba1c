"""Fill the masks of a text with a model that has a masked-LM head: ``fill_mask``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from bertine.core.console import ReportOf, aligned, log_all, logger, plural
from bertine.core.errors import BertineError
from bertine.core.names import option
from bertine.core.scores import ranking
from bertine.hub.model_directory import LoadedModel, load_model
from bertine.models.encoder import TextInputs
from bertine.models.precision import finite
from bertine.options.verbs import check_types


@dataclass(frozen=True)
class Candidate:
    """A piece for a mask: its name (:mod:`bertine.tokenization.base`), its probability there, the
    text with only this mask replaced, and its id in the vocabulary."""

    token: str
    probability: float
    text: str
    id: int


@dataclass(frozen=True)
class FilledMask:
    """A mask: its start in the text (characters), and its candidates, best first."""

    start: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, repr=False)
class FilledMasks(ReportOf[FilledMask]):
    """The masks of a text, in their order; a sequence of :class:`FilledMask`."""

    text: str
    masks: tuple[FilledMask, ...]

    holds = "masks"

    def lines(self) -> list[str]:
        """Return one line for each candidate; with several masks, a heading for each."""
        lines = []
        for number, mask in enumerate(self.masks, 1):
            if len(self.masks) > 1:
                lines.append(f"mask {number} of {len(self.masks)}")
            rows = [
                (f"{candidate.probability:.2%}", candidate.token, candidate.text)
                for candidate in mask.candidates
            ]
            lines.extend(aligned(rows, left=(1, 2)))
        return lines


@check_types
def fill_mask(model: LoadedModel | Path | str, text: str, *, top_k: int = 5) -> FilledMasks:
    """Find the most probable pieces for each mask of `text`, in their order.

    Each mask is judged with all others still masked, and its candidates' texts keep the other
    masks. Computed in fp32.

    Args:
        model: a model directory, or a model loaded from one.
        text: with one or more masks, written as the vocabulary has them: ``[MASK]`` for BERT,
            ``<mask>`` for RoBERTa (:attr:`bertine.Tokenizer.mask_text`).
        top_k: candidates for each mask.

    Raises:
        BertineError: no mask in the text, a text longer than the model takes, a model without a
            masked-LM head, `top_k` out of range.
    """
    if isinstance(model, LoadedModel):
        loaded = model
    else:
        loaded = load_model(model)
        log_all(loaded.report.lines())
    tokenizer, config = loaded.tokenizer, loaded.config
    if "mlm" not in loaded.model.heads:
        name = "this model" if isinstance(model, LoadedModel) else str(model)
        if "mlm" not in loaded.model.family.heads:
            raise BertineError(
                f"{name}: is of type {config.model_type}, which fills no masks"
                + ("; 'bertine generate' goes on with a text" if config.writes_with else "")
            )
        if loaded.model.missing_partners():
            raise BertineError(
                f"{name}: has no masked-LM head: it detects replaced tokens; use the "
                f"generator that it was trained with ({option('save_generator', True)} of "
                "'bertine pretrain' writes it), or a masked language model"
            )
        raise BertineError(
            f"{name}: has no masked-LM head (fine-tuning drops it); use a pre-trained model"
        )
    if not 1 <= top_k <= tokenizer.vocab_size:
        raise BertineError(f"top_k is {top_k}, but must be in 1..{tokenizer.vocab_size}")
    mask = tokenizer.require_mask("filling masks")
    encoding = tokenizer.encode(text)
    length = len(encoding.input_ids)
    positions = [at for at, index in enumerate(encoding.input_ids) if index == mask]
    if not positions:
        raise BertineError(
            f"the text has no {tokenizer.mask_text}; {tokenizer.mask_hint}, for the word to guess"
        )
    if length > config.longest_input:
        raise BertineError(
            f"the text has {length} pieces, but the model takes {config.longest_input}; shorten it"
        )
    unk = tokenizer.unk_token_id
    unknown = 0 if unk is None else encoding.input_ids.count(unk)
    if unk is not None and unknown and not isinstance(model, LoadedModel):
        what = plural(unknown, "word")
        name = tokenizer.id_to_token(unk)
        logger.warning(f"{what} of the text unknown to the vocabulary, read as {name}")
    device = next(loaded.model.parameters()).device
    loaded.model.eval()
    with torch.inference_mode():
        ids, types = (
            torch.tensor([values], device=device)
            for values in (encoding.input_ids, encoding.token_type_ids)
        )
        encoded = loaded.model.encode(TextInputs(ids, token_type_ids=types))
        places = torch.tensor(positions, device=device)
        logits = loaded.model.read("mlm", encoded, places=places)
        # A model may have more rows than its tokenizer has pieces, to reach a round number.
        logits = finite(logits[:, : tokenizer.vocab_size].float().cpu())
        probabilities = logits.softmax(-1)
    filled = []
    for at, scores, chances in zip(positions, logits.numpy(), probabilities, strict=True):
        start, end = encoding.offsets[at]
        begins = not text[:start].strip()
        candidates = tuple(
            Candidate(
                tokenizer.name_at(index, begins),
                float(chances[index]),
                tokenizer.put_piece(text, start, end, index),
                index,
            )
            for index in ranking(scores, top_k).tolist()
        )
        filled.append(FilledMask(start, candidates))
    return FilledMasks(text, tuple(filled))
