"""Texts, small tokenizers, and the published vocabularies of BERT and RoBERTa, unpacked."""

import json
import lzma
from pathlib import Path

import pytest

import unigrams
from bertine.tokenization.tokenizer import Tokenizer
from roberta import write_vocabulary

FIXTURES = Path(__file__).parents[1] / "fixtures" / "vocab"

#: name -> whether it is lower-cased (``do_lower_case`` of the published model).
PUBLISHED = {
    "bert-base-uncased": True,
    "bert-base-cased": False,
    "bert-base-chinese": True,
    "bert-base-multilingual-cased": False,
}

#: Sentences with capitals, accents, marks, numbers and other scripts.
SENTENCES = [
    "the lighthouse keeper climbed the narrow stairs",
    "He carried an old lamp and the keeper's rope; the lamp was narrow!",
    "Zürich, café, naïve, 你好世界 and 😀 are here",
    "the stairs of the lighthouse weren't lit in 1893 or 1894",
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file of these sentences, each 40 times."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(SENTENCES * 40) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def published(tmp_path_factory) -> dict[str, Path]:
    """Folders with vocab.txt and tokenizer_config.json, by the name of the model."""
    root = tmp_path_factory.mktemp("published")
    for name, lowercase in PUBLISHED.items():
        folder = root / name
        folder.mkdir()
        packed = (FIXTURES / f"{name}.txt.xz").read_bytes()
        (folder / "vocab.txt").write_bytes(lzma.decompress(packed))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase})
        )
    return {name: root / name for name in PUBLISHED}


@pytest.fixture(scope="session")
def roberta(tmp_path_factory) -> Path:
    """A folder with the vocab.json and the merges.txt of RoBERTa."""
    return write_vocabulary(tmp_path_factory.mktemp("roberta") / "vocabulary")


@pytest.fixture(scope="session")
def albert(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A small Unigram tokenizer of ALBERT's layout."""
    return Tokenizer.load(unigrams.write_albert(tmp_path_factory.mktemp("albert")))


@pytest.fixture(scope="session")
def xlm_r(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """One of XLM-R's layout."""
    return Tokenizer.load(unigrams.write_fairseq(tmp_path_factory.mktemp("xlm-r")))
