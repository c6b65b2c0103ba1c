"""Learn a Unigram vocabulary: its pieces and their probabilities.

(Kudo 2018, arXiv 1804.10959, section 3.2; google/sentencepiece, ``unigram_model_trainer.cc``.) All
frequent substrings of the text are the first vocabulary. Expectation maximization gives each a
probability: every division of a text into pieces counts with its weight. Then the pieces whose loss
costs the text least are removed, a quarter at a time, until the vocabulary has the requested size.
Single characters are kept.

Texts are laid out one after the other as a lattice: nodes between characters, an edge for each
possible piece. Edges that end at equal distances from the start of their texts are computed
together, by NumPy. Sums are computed in a fixed order, so that the same text gives the same
vocabulary; the trainer of `tokenizers` visits texts in the order of a hash table that differs in
every process, and its scores differ in the third decimal.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.options.data import Vocabulary
from bertine.tokenization.learners import COVERAGE, LEAST_COVERAGE, WORD, VocabLearner
from bertine.tokenization.tokenizer import Tokenizer
from bertine.tokenization.unigram import Unigram, albert_steps
from bertine.tokenization.unigram_files import SPACE, STYLES

#: Most characters of a piece and of a text.
LONGEST_PIECE, LONGEST_TEXT = 16, 32

#: Pieces of the first vocabulary, as a multiple of the requested size, and at least.
_SEEDS, _LEAST_SEEDS = 12, 50_000
#: The share of pieces kept in each round, and the size factor before the last cut.
_KEPT, _NEARLY = 0.75, 1.1
#: Steps of expectation maximization per round.
_STEPS = 2
#: Pieces with a smaller expected count are removed.
_LEAST_EXPECTED = 0.5
#: Decimals of a score; further ones may differ between machines.
_DECIMALS = 5

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Texts:
    """Texts one after the other, as code points.

    Attributes:
        characters: uint32 [N].
        lengths: int64 [texts].
        starts: int64 [texts], the place of the first character of each.
        left: int64 [N], number of characters from each one to the end of its text, inclusive.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        joined = "".join(texts).encode("utf-32-le")
        self.characters = np.frombuffer(joined, np.uint32)
        self.lengths: Ints = np.fromiter(map(len, texts), np.int64, len(texts))
        ends = np.cumsum(self.lengths)
        self.starts: Ints = ends - self.lengths
        self.left: Ints = np.repeat(ends, self.lengths) - np.arange(len(self.characters))

    def hashes(self, length: int, shorter: Hashes) -> tuple[Ints, Hashes]:
        """Return the positions where `length` characters of one text begin, and a hash for each.

        Args:
            shorter: at each position the hash of one character less, which is replaced by the new
                one if there is one; begin with zeros.
        """
        places = np.flatnonzero(self.left >= length)
        added = self.characters[places + length - 1].astype(np.uint64)
        # An odd factor, and well separated characters: 64 bits for different substrings.
        mixed = (added + np.uint64(1)) * np.uint64(0xD1B54A32D192ED03)
        mixed ^= mixed >> np.uint64(29)
        shorter[places] = shorter[places] * _FACTOR + mixed * np.uint64(0xBF58476D1CE4E5B9)
        return places, shorter[places]


@dataclass
class _Layer:
    """Edges that end (or begin) at the same distance in their texts, sorted by node: the offsets of
    each node's edges, and the nodes."""

    edges: slice
    first: Ints
    nodes: Ints


class Lattice:
    """The possible places of the pieces in texts.

    Attributes:
        source, target: int32 [edges], the nodes around each piece.
        piece: int32 [edges], its index.
        ends: int64 [texts], the last node of each text; `begins` the first.
    """

    def __init__(self, texts: Texts, table: dict[int, tuple[Hashes, Ints]]) -> None:
        """Look up the pieces; `table` has, by length, their sorted hashes and their indices."""
        node = np.arange(len(texts.characters)) + np.repeat(
            np.arange(len(texts.lengths)), texts.lengths
        )
        self.begins: Ints = texts.starts + np.arange(len(texts.lengths))
        self.ends: Ints = self.begins + texts.lengths
        depth = np.zeros(int(texts.lengths.sum()) + len(texts.lengths), np.int32)
        depth[node] = np.repeat(texts.lengths, texts.lengths) - texts.left
        depth[self.ends] = texts.lengths
        self._depth = depth
        rolling: Hashes = np.zeros(len(texts.characters), np.uint64)
        spans: list[tuple[Any, Any, Any]] = []
        for length in range(1, LONGEST_PIECE + 1):
            places, hashes = texts.hashes(length, rolling)
            if length not in table or not len(places):
                continue
            known, numbers = table[length]
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            fits = known[at] == hashes
            begin = node[places[fits]]
            spans.append((begin, begin + length, numbers[at[fits]]))
        self.source, self.target, self.piece = (
            np.concatenate(column).astype(np.int32) for column in zip(*spans, strict=True)
        )
        self._arrange()

    def _arrange(self) -> None:
        """Sort the edges by their end, and store their order by their beginning."""
        order = np.lexsort((self.source, self.target, self._depth[self.target]))
        self.source, self.target, self.piece = (
            values[order] for values in (self.source, self.target, self.piece)
        )
        self._forward = _layers(self._depth[self.target], self.target)
        self._by_source = np.lexsort((self.target, self.source, self._depth[self.source]))
        begins = self.source[self._by_source]
        self._backward = _layers(self._depth[begins], begins)[::-1]

    def keep(self, numbers: Ints) -> None:
        """Renumber the pieces, and remove those whose new number is negative."""
        piece = numbers[self.piece]
        stays = piece >= 0
        self.source, self.target = self.source[stays], self.target[stays]
        self.piece = piece[stays].astype(np.int32)
        self._arrange()

    def expected(self, scores: Floats, counts: Floats) -> tuple[Floats, float]:
        """Return the expected count of each piece in the texts, and the log-likelihood of the
        texts.

        Args:
            scores: float64 [pieces], logarithms of probabilities.
            counts: float64 [texts], count of each text.
        """
        weight = np.exp(scores)[self.piece]
        forward, backward = np.zeros(len(self._depth)), np.zeros(len(self._depth))
        forward[self.begins] = backward[self.ends] = 1.0
        for layer in self._forward:
            part = layer.edges
            forward[layer.nodes] = np.add.reduceat(
                forward[self.source[part]] * weight[part], layer.first
            )
        target, by_source = self.target[self._by_source], weight[self._by_source]
        for layer in self._backward:
            part = layer.edges
            backward[layer.nodes] = np.add.reduceat(
                backward[target[part]] * by_source[part], layer.first
            )
        whole = forward[self.ends]
        share = np.repeat(counts / whole, self.ends - self.begins + 1)
        flow = forward[self.source] * weight * backward[self.target] * share[self.source]
        expected: Floats = np.bincount(self.piece, flow, len(scores)).astype(np.float64)
        return expected, float((counts * np.log(whole)).sum())

    def best(self, scores: Floats) -> Floats:
        """Return the score of each text's best division into more than one piece, float64 [texts];
        -inf if there is none."""
        whole = np.zeros(len(self._depth), np.bool_)
        whole[self.ends] = True
        one = whole[self.target] & (self._depth[self.source] == 0)
        weight = np.where(one, -np.inf, scores[self.piece])
        reached = np.full(len(self._depth), -np.inf)
        reached[self.begins] = 0.0
        for layer in self._forward:
            part = layer.edges
            reached[layer.nodes] = np.maximum.reduceat(
                reached[self.source[part]] + weight[part], layer.first
            )
        return reached[self.ends]


def _layers(depth: npt.NDArray[Any], nodes: npt.NDArray[Any]) -> list[_Layer]:
    """Group edges sorted by depth and node into layers."""
    layers = []
    begin = 0
    for end in [*(np.flatnonzero(np.diff(depth)) + 1).tolist(), len(depth)]:
        here = nodes[begin:end]
        first = np.concatenate([[0], np.flatnonzero(np.diff(here)) + 1])
        layers.append(_Layer(slice(begin, end), first, here[first].astype(np.int64)))
        begin = end
    return layers


def estimate(
    texts: Sequence[str], counts: Sequence[int], *, size: int, least: int
) -> list[tuple[str, float]]:
    """Learn a vocabulary.

    Args:
        texts: distinct texts, each of at most :data:`LONGEST_TEXT` characters.
        counts: the count of each.
        size: number of pieces, including all single characters; fewer are returned if the texts
            have no more.
        least: least count of a piece of several characters.

    Returns:
        The pieces with their log-probabilities, the most probable first.
    """
    held, weights = Texts(texts), np.array(counts, np.float64)
    pieces, frequencies = _seeds(held, weights, max(_SEEDS * size, _LEAST_SEEDS), least)
    single = np.fromiter((len(piece) == 1 for piece in pieces), np.bool_, len(pieces))
    table = _table(pieces)
    lattice, own = Lattice(held, table), Lattice(Texts(pieces), table)
    names = np.arange(len(pieces))
    scores = np.log(frequencies) - np.log(frequencies.sum())

    def cut(stays: npt.NDArray[np.bool_]) -> None:
        nonlocal names, scores, single
        numbers = np.where(stays, np.cumsum(stays) - 1, -1)
        lattice.keep(numbers)
        own.keep(numbers)
        names, scores, single = names[stays], scores[stays], single[stays]

    def maximize() -> Floats:
        nonlocal scores
        expected = np.zeros(0)
        for _ in range(_STEPS):
            expected, _ = lattice.expected(scores, weights)
            stays = single | (expected >= _LEAST_EXPECTED)
            expected = np.maximum(expected[stays], _LEAST_EXPECTED)
            cut(stays)
            scores = _digamma(expected) - _digamma(np.array([expected.sum()]))[0]
        return expected

    while True:
        expected = maximize()
        if len(names) <= size:
            break
        # The loss of the text: each piece is replaced by its best division into others.
        loss = expected * (scores - own.best(scores)[names])
        near = len(names) <= _NEARLY * size
        most = size if near else max(int(_NEARLY * size), int(_KEPT * len(names)))
        loss[single] = np.inf
        order = np.lexsort((names, -loss))
        stays = np.zeros(len(names), np.bool_)
        stays[order[:most]] = True
        cut(stays)
        if near:
            maximize()
            break
    rounded = np.round(scores, _DECIMALS)
    order = np.lexsort((names, -rounded))
    return [(pieces[names[place]], float(rounded[place])) for place in order.tolist()]


def _seeds(texts: Texts, weights: Floats, most: int, least: int) -> tuple[list[str], Floats]:
    """Return the first vocabulary and the count of each piece: all characters, and the longer
    substrings that cover most of the text. A substring that is always followed by the same
    character is left out, because the longer one carries the same information."""
    per_place = np.repeat(weights, texts.lengths)
    rolling: Hashes = np.zeros(len(texts.characters), np.uint64)
    alive = np.ones(len(texts.characters), np.bool_)
    # For the previous length: the substring that begins at each position, and its count.
    before: Ints = np.zeros(len(texts.characters), np.int64)
    known: list[tuple[int, Ints, Floats, npt.NDArray[np.bool_]]] = []
    for length in range(1, LONGEST_PIECE + 1):
        places, hashes = texts.hashes(length, rolling)
        going = alive[places]
        places, hashes = places[going], hashes[going]
        if not len(places):
            break
        _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        times: Floats = np.bincount(group, per_place[places]).astype(np.float64)
        if known:
            _, _, shorter, goes_on = known[-1]
            parent = before[places[first]]
            goes_on[parent[times == shorter[parent]]] = True
        enough = times >= (1 if length == 1 else least)
        known.append((length, places[first], times, np.zeros(len(times), np.bool_)))
        alive[:] = False
        alive[places[enough[group]]] = True
        before[places] = group
    texts_of: list[str] = []
    frequencies: list[float] = []
    worth: list[float] = []
    characters = texts.characters.tobytes()
    for length, first, times, goes_on in known:
        wanted = (times >= least) & ~goes_on if length > 1 else ~np.zeros_like(goes_on)
        for place in np.flatnonzero(wanted).tolist():
            begin = 4 * int(first[place])
            texts_of.append(characters[begin : begin + 4 * length].decode("utf-32-le"))
            frequencies.append(float(times[place]))
            worth.append(np.inf if length == 1 else float(times[place]) * length)
    order = sorted(range(len(worth)), key=lambda n: (-worth[n], texts_of[n]))
    singles = sum(1 for value in worth if value == np.inf)
    order = order[: max(most, singles)]
    return [texts_of[n] for n in order], np.array([frequencies[n] for n in order])


def _table(pieces: Sequence[str]) -> dict[int, tuple[Hashes, Ints]]:
    """Return the sorted hashes of pieces by length, with their indices."""
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    table = {}
    for length in np.unique(lengths).tolist():
        numbers = np.flatnonzero(lengths == length)
        texts = Texts([pieces[number] for number in numbers.tolist()])
        rolling: Hashes = np.zeros(len(texts.characters), np.uint64)
        for count in range(1, length + 1):
            texts.hashes(count, rolling)
        hashes = rolling[texts.starts]
        order = np.argsort(hashes, kind="stable")
        table[length] = hashes[order], numbers[order]
    return table


def _digamma(x: Floats) -> Floats:
    """Return the derivative of the logarithm of the gamma function (Abramowitz and Stegun, 6.3.5
    and 6.3.18), for x > 0."""
    below = np.zeros_like(x)
    for step in range(6):
        below += 1.0 / (x + step)
    y = x + 6.0
    square = 1.0 / (y * y)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return np.log(y) - 0.5 / y - series - below


# Learner of Unigram vocabularies in the form of ALBERT's or XLNet's.
#
# The vocabulary begins with ``<pad> <unk> [CLS] [SEP] [MASK]`` or with XLNet's nine special tokens,
# followed by the pieces, the most probable first. Text is normalized as ALBERT's, with NFKC in
# place of sentencepiece's own table. As in sentencepiece, no piece crosses the border between
# letters of different scripts, numbers and marks (``split_by_unicode_script``,
# ``split_by_number``).

#: Most different words counted at a time, and most of their characters learnt from.
_MOST_WORDS, _MOST_CHARACTERS = 1 << 21, 1 << 22
#: Words normalized at a time, and their separator: a character for private use.
_NORMALIZED, _BETWEEN = 4096, "\ue000"
#: Most characters of a word without spaces that are counted.
_LONGEST_WORD = 1 << 10

#: Scripts that are used together.
_JAPANESE = {"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC", "CJK"}


class UnigramLearner(VocabLearner):
    """A learner of Unigram vocabularies; see :func:`bertine.train_vocab` for its arguments.

    Raises:
        BertineError: `vocab_size` has no room for a piece.
    """

    has_unknown = True

    def __init__(self, options: Vocabulary) -> None:
        self._specials = STYLES[options.special_tokens or "albert"].first_pieces
        least = len(self._specials) + 2
        if options.vocab_size < least:
            raise BertineError(
                f"vocab_size {options.vocab_size} is too small for the special tokens; give at "
                f"least {least}"
            )
        self._options = options
        lowercase = options.lowercase is not False
        strip = lowercase if options.strip_accents is None else options.strip_accents
        self._normalizer = albert_steps(b"", lowercase=lowercase, strip_accents=strip)

    def learn(self, lines: Iterator[list[str]]) -> Tokenizer:
        """Learn the pieces of the lines."""
        stretches = self._stretches(_count_words(lines))
        alphabet = self._alphabet(stretches)
        texts = _split_at_unknown(stretches, alphabet)
        chosen = sorted(texts, key=lambda text: (-texts[text], text))
        chosen = _as_many_as_fit(chosen, texts)
        vocab = estimate(
            chosen,
            [texts[text] for text in chosen],
            size=self._options.vocab_size - len(self._specials),
            least=max(2, self._options.min_frequency),
        )
        specials = [(token, 0.0) for token in self._specials]
        kind = Unigram.build([*specials, *vocab], self._normalizer, "vocabulary")
        return Tokenizer(kind, "vocabulary")

    def count_words(self, lines: Sequence[str], begins_word: npt.NDArray[Any]) -> int:
        return sum(len(WORD.findall(line)) for line in lines)

    def _stretches(self, words: Counter[str]) -> Counter[str]:
        """Split the normalized words into stretches whose borders no piece crosses, with the space
        before each word."""
        specials = [(token, 0.0) for token in self._specials]
        reader = Unigram.build([*specials, (SPACE, -1.0)], self._normalizer, "vocabulary").backend
        normalize = reader.normalizer.normalize_str
        ordered = sorted(words)
        stretches: Counter[str] = Counter()
        for begin in range(0, len(ordered), _NORMALIZED):
            group = ordered[begin : begin + _NORMALIZED]
            parts = normalize(_BETWEEN.join(group)).split(_BETWEEN)
            if len(parts) != len(group):  # a word contains the separator
                parts = [normalize(word) for word in group]
            for word, part in zip(group, parts, strict=True):
                for piece in part.split():
                    for stretch in divide(SPACE + piece.replace(SPACE, "")):
                        stretches[stretch] += words[word]
        if not stretches:
            raise BertineError("the corpus has no visible character; give a corpus with some text")
        return stretches

    def _alphabet(self, stretches: Counter[str]) -> frozenset[str]:
        """Choose the characters of the vocabulary: the most frequent ones, which together cover
        99.99% of the text, or the requested number. They are at most half of it.

        Raises:
            BertineError: it is too small for them.
        """
        counts: Counter[str] = Counter()
        for stretch, times in stretches.items():
            for character in stretch:
                counts[character] += times
        spaces = counts.pop(SPACE, 0)
        ranked = sorted(counts, key=lambda c: (-counts[c], c))
        total = sum(counts.values())
        size, limit = self._options.vocab_size, self._options.limit_alphabet

        def needed(share: float) -> int:
            """Count the characters that cover this share of the text."""
            covered = 0
            for number, character in enumerate(ranked):
                if covered >= share * total:
                    return number
                covered += counts[character]
            return len(ranked)

        room = size - len(self._specials) - 1
        most = min(needed(COVERAGE), max(room // 2, 1)) if limit is None else limit
        # Also rarer characters if they take little room.
        most = max(most, size // 20) if limit is None else most
        most = min(most, len(ranked))
        if most > room:
            raise BertineError(
                f"vocab_size {size} is too small for an alphabet of {most:,} "
                f"characters; give at least {most + size - room:,}, or a smaller limit_alphabet"
            )
        chosen = ranked[:most]
        covered = sum(counts[word] for word in chosen)
        if limit is None and covered < LEAST_COVERAGE * total:
            least = 2 * needed(LEAST_COVERAGE) + size - room
            raise BertineError(
                f"vocab_size {size} is too small for the {len(ranked):,} characters of this "
                f"corpus; give at least {least:,}, or say how many to keep with limit_alphabet"
            )
        self.alphabet_size, self.characters_seen = len(chosen), len(ranked)
        self.coverage = covered / total
        if limit is None and covered < COVERAGE * total:
            self.full_size = 2 * needed(COVERAGE) + size - room
        return frozenset([*chosen, *[SPACE] * (spaces > 0)])


def _count_words(lines: Iterator[list[str]]) -> Counter[str]:
    """Count the parts between spaces. If there are too many different words, the more frequent half
    is kept; ties are broken by a hash of their letters."""
    words: Counter[str] = Counter()
    forgotten = 0
    for group in lines:
        for line in group:
            for word in line.split():
                if len(word) <= _LONGEST_WORD:
                    words[word] += 1
                else:
                    parts = range(0, len(word), _LONGEST_WORD)
                    words.update(word[begin : begin + _LONGEST_WORD] for begin in parts)
        if len(words) > _MOST_WORDS:
            ranked = sorted(words, key=lambda word: (-words[word], _hash(word), word))
            forgotten += sum(words[word] for word in ranked[_MOST_WORDS // 2 :])
            words = Counter({word: words[word] for word in ranked[: _MOST_WORDS // 2]})
    if forgotten:
        logger.warning(
            f"{forgotten:,} rare words are not counted: there are more than {_MOST_WORDS:,} "
            "different ones"
        )
    return words


def _hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "replace"))


def divide(word: str) -> Iterator[str]:
    """Yield the stretches of a word whose borders no piece crosses: letters of one script, digits
    or marks, each with combining characters. The first one includes the space before the word."""
    begin, before = 0, ""
    for place, character in enumerate(word):
        script = _script(character)
        if script == "":
            continue
        if before and script != before:
            yield from _parts(word[begin:place])
            begin = place
        before = script
    yield from _parts(word[begin:])


def _parts(stretch: str) -> Iterator[str]:
    """Yield a stretch in parts of bounded length."""
    for begin in range(0, len(stretch), LONGEST_TEXT):
        yield stretch[begin : begin + LONGEST_TEXT]


@lru_cache(1 << 17)
def _script(character: str) -> str:
    """Return the script of a letter by the first word of its name, "0" for a digit, "." for other
    marks, and "" for a character that belongs to the one before it (and for the space before a
    word)."""
    category = unicodedata.category(character)
    if character == SPACE or category[0] == "M":
        return ""
    if category[0] == "N":
        return "0"
    if category[0] != "L":
        return "."
    name = unicodedata.name(character, "unknown").split(" ")[0]
    return "CJK" if name in _JAPANESE else name


def _split_at_unknown(stretches: Counter[str], alphabet: frozenset[str]) -> Counter[str]:
    """Split the stretches at characters that are not in the alphabet."""
    known: Counter[str] = Counter()
    for stretch, times in stretches.items():
        if alphabet.issuperset(stretch):
            known[stretch] += times
            continue
        text = "".join(c if c in alphabet else "\0" for c in stretch)
        for part in text.split("\0"):
            if part:
                known[part] += times
    return known


def _as_many_as_fit(chosen: list[str], counts: Counter[str]) -> list[str]:
    """Return the first items up to a total number of characters, and note the rest."""
    size = 0
    for number, text in enumerate(chosen):
        size += len(text)
        if size > _MOST_CHARACTERS:
            held = sum(counts[word] for word in chosen[:number])
            logger.warning(
                f"pieces are learnt from the {number:,} most frequent of {len(chosen):,} "
                f"different words, {held / counts.total():.2%} of the text"
            )
            return chosen[:number]
    return chosen
