"""How a mask is written in a text, by kind of vocabulary. Imports nothing, so that ``--help`` may
say it."""

from __future__ import annotations

#: In WordPiece vocabularies (BERT).
WORDPIECE_MASK = "[MASK]"
#: In vocabularies of byte-level BPE (RoBERTa, BART).
BYTE_BPE_MASK = "<mask>"
#: For people.
MASKS = f"{WORDPIECE_MASK} of BERT, {BYTE_BPE_MASK} of RoBERTa"
