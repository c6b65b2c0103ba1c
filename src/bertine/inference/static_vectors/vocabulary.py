"""Read the tokenizer beside a table of vectors, which may lack tokens that a model needs.

model2vec removes [CLS], [SEP] and [MASK], which no text has. Here they are put behind the
vocabulary again, where they have no vector, so that the tokenizer is one like any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertine.errors import BertineError
from bertine.files import read_json_object
from bertine.text.kind import check_added_tokens
from bertine.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertine.text.wordpiece import WordPiece

_FILE = "tokenizer.json"


def static_tokenizer(folder: Path) -> tuple[Tokenizer, int | None]:
    """Return the tokenizer of a folder, and the id of its piece for unknown text; None: it has
    none.

    Raises:
        BertineError: no tokenizer that is known here.
    """
    file = folder / _FILE
    value: dict[str, Any] = read_json_object(file) if file.is_file() else {}
    model = value.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict) and WordPiece.is_of_json(value):
        missing = [token for token in SPECIAL_TOKENS if token not in vocab]
        if missing and "[UNK]" in vocab:
            tokenizer = _completed(file, value, vocab, missing)
            return tokenizer, tokenizer.unk_token_id
    tokenizer = Tokenizer.load(folder)
    return tokenizer, tokenizer.unk_token_id


def _completed(
    file: Path, value: dict[str, Any], vocab: dict[str, Any], missing: list[str]
) -> Tokenizer:
    first = len(vocab)
    added = value.get("added_tokens") or []
    check_added_tokens(file, added)
    behind = sum(1 for entry in added if entry["id"] >= first)
    if behind:
        raise BertineError(
            f"{file}: {behind} added tokens stand behind the vocabulary, which is not read here"
        )
    vocab |= {token: first + at for at, token in enumerate(missing)}
    return Tokenizer(WordPiece.from_json(file, value, {}), str(file))
