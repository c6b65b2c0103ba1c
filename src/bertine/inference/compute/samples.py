"""Sample inputs for comparing precisions: some sentences, and pieces of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

from bertine.rng import generator
from bertine.text.pieces import run_together
from bertine.text.tokenizer import Tokenizer

#: Of many kinds: statements, questions, exclamations, messages, numbers, names, one word. Where
#: the vocabulary is of another language they become letters and unknown words, which is why there
#: are also inputs of the vocabulary's own pieces.
TEXTS = (
    "The committee will meet again on Thursday, 14 March, to decide about the bridge.",
    "i cant believe how happy this little song makes me feel after such an awful week",
    "A slow, clumsy film with two good actors who deserve better.",
    "Who wrote the letter that was found in the library in 1894?",
    "yes",
    "Shares of the company fell 7.5% to $31.20 after the report, while rivals gained.",
    "Mix the flour with 200 g of butter, add an egg and leave it in the fridge for an hour.",
    "Dr. Okafor of the University of Lagos does not agree; her own results say the opposite.",
    "What a view! We walked for six hours and saw nobody but a shepherd and his dogs.",
    "Never buying from them again, the zip broke on the first day and nobody answers.",
    "In mathematics, a group is a set with an operation that is associative, has an identity "
    "element and an inverse for every element; the integers with addition are an example.",
    "RT @someone: new version is out!!! see https://example.org/news :) #release",
    "The old man sat by the window and watched the rain, as he had done every evening since the "
    "boats had gone; he did not light the lamp, and when his daughter came in with the bread he "
    "asked her, without turning his head, whether anyone had been seen on the road from the town.",
    "If the pump does not start, check the fuse (F3), then call the number on the label.",
    "feeling a bit anxious and a bit hopeful about tomorrow",
    "It was neither as good as the critics said nor as bad as my brother had warned me.",
)

#: How many inputs of pieces, and how long.
_PIECES = (8, 16, 24, 32)


def sample_inputs(tokenizer: Tokenizer, max_length: int) -> list[list[int]]:
    """Return the ids of :data:`TEXTS` and of pieces drawn from the vocabulary, with special tokens,
    cut at `max_length`. Always the same for a tokenizer."""
    encoded = [*tokenizer.encode_plain(TEXTS), *_drawn_pieces(tokenizer)]
    return [_with_ends(ids, tokenizer, max_length) for ids in encoded]


def sample_texts(tokenizer: Tokenizer) -> list[str]:
    """Return :data:`TEXTS`, and texts of pieces drawn from the vocabulary. Always the same for a
    tokenizer."""
    drawn = [run_together(tokenizer.names[i] for i in ids) for ids in _drawn_pieces(tokenizer)]
    return [*TEXTS, *drawn]


def _drawn_pieces(tokenizer: Tokenizer) -> list[list[int]]:
    """Draw ids of pieces of the vocabulary, a list for each number of `_PIECES`; none where it has
    special tokens alone."""
    ordinary = [
        number for number in range(tokenizer.vocab_size) if number not in tokenizer.special_ids
    ]
    if not ordinary:
        return []
    draw = generator(0, "sample pieces")
    return [[ordinary[i] for i in draw.integers(0, len(ordinary), size=n)] for n in _PIECES]


def _with_ends(ids: Sequence[int], tokenizer: Tokenizer, max_length: int) -> list[int]:
    frame = tokenizer.template.one
    return frame.join([ids[: max(0, max_length - frame.added())]])
