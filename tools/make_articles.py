"""Rebuild the articles bundled with ``bertine demo`` from a collection of Wikipedia articles.

    python tools/make_articles.py WIKI.jsonl.zst [--out src/bertine/contrib/demo/data]

WIKI.jsonl.zst holds one article a line: ``id``, ``title``, ``text`` (a paragraph a line, section
headings as short lines that end in a full stop). Written are ``subjects.jsonl.zst`` (passages
labelled with what they are about: train, validation, test), ``articles.jsonl.zst`` (other articles
to pre-train on, no labels) and ``LICENSE-articles.md``, which names every article. The same input
gives the same bytes.

The label of an article is read off its first sentence, by the noun that says what its subject is
("X is a species of *tree*", "X is an English *footballer*"). Nobody has read all of them: a few
labels will be wrong. Every article is in one part only.

The articles must not be among those that ``bertine-en`` was trained on (``recipes/box`` leaves
them out).
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from compressed_rows import read_rows, write_rows
from sentencex import segment

from bertine.core.files import write_text
from bertine.core.rng import generator

#: subject -> nouns that name it at the head of "X is a ...".
NOUNS: dict[str, str] = {
    "animal or plant": """
        amphibian ant antelope ape bat bear bee beetle bird breed butterfly cactus carnivore cat
        cattle cephalopod chicken clam conifer coral crab crocodile crustacean cultivar deer
        dinosaur dog dolphin duck eagle eel falcon fern finch fish flower fly fox frog fruit fungus
        genus goat goose grape grass gull hawk herb herbivore heron hummingbird insect invertebrate
        jellyfish lemur lizard lobster mammal marsupial mollusc mollusk monkey moss moth mouse
        mushroom nut octopus orchid owl palm parrot penguin plant porpoise predator primate rabbit
        rat ray reptile rodent rose salamander salmon seabird seal shark sheep shellfish shrew
        shrimp shrub skink snail snake songbird sparrow species spice spider squid squirrel
        starfish subspecies termite terrier thrush toad tortoise tree trout tuber turtle ungulate
        vegetable vertebrate viper vine vulture warbler wasp weed whale wildflower wolf woodpecker
        worm""",
    "film, book or game": """
        anime animation autobiography biography book cartoon character comedy comic documentary
        drama episode fable fairytale fantasy fiction film game manga melodrama memoir miniseries
        movie musical mystery novel novella parody play poem remake romance satire screenplay
        sequel series shooter show sitcom soap story strip thriller trilogy webcomic western""",
    "medicine or chemistry": """
        acid alcohol alkaloid alkane allergy allotrope alloy amine anemia anesthetic antibiotic
        antidepressant antigen antihistamine base cancer catalyst chemical compound condition
        deficiency disease disorder drug element ester ether enzyme fever gas hormone hydrocarbon
        hydroxide illness infection inflammation injury isotope ketone medication medicine metal
        mineral molecule narcotic neoplasm neurotransmitter nutrient operation opioid oxide
        painkiller peptide pigment plastic poison polymer procedure protein receptor salt sedative
        solvent steroid stimulant substance sugar surgery symptom syndrome therapy toxin treatment
        tumor vaccine virus vitamin""",
    "music": """
        album anthem aria band ballad ballet bassist cellist chord composer composition concerto
        conductor drummer duo ensemble guitar guitarist harpsichordist hymn instrument keyboardist
        label lyricist mixtape musician musicologist opera orchestra organist percussionist pianist
        piano producer quartet rapper rhythm saxophonist scale singer single sonata song songwriter
        soprano suite symphony tenor trio trumpeter tune vocalist violin violinist""",
    "place": """
        archipelago area atoll bay beach borough canal canton capital cape castle city coast
        colony commune community country county creek desert district estuary forest glacier gulf
        hamlet harbor harbour hill island islet lagoon lake locality metropolis mountain
        municipality nation neighborhood neighbourhood oasis parish park peak peninsula plain
        plateau port prefecture province reef region republic reservoir resort river sea seaport
        settlement state strait suburb summit territory town township tributary valley village
        volcano voivodeship ward waterfall""",
    "sport": """
        archer arena athlete ballpark baseman batsman bowler boxer catcher center champion
        championship climber club coach competition contest cornerback cricketer cup cyclist
        defenceman defender driver event fighter footballer forward franchise goalkeeper goaltender
        golfer guard gymnast hockey jockey league linebacker manager match midfielder martial
        olympian outfielder pitcher player quarterback race racer racetrack receiver referee rider
        rower runner sailor shortstop skater skier snowboarder sport sportsman sprinter stadium
        striker surfer swimmer swordsman team tournament umpire weightlifter winger wrestler""",
}

#: Nouns that name a subject only where the first sentence has one of these words too.
_UNSURE: dict[str, tuple[str, str]] = {
    "animal or plant": (
        "breed cultivar genus species subspecies cat dog ray predator nut spice grape fruit",
        r"animals?|birds?|cats?|cattle|chickens?|dinosaurs?|dogs?|ferns?|fish(es)?|flower\w*|"
        r"frogs?|fung(us|i)|goats?|grass(es)?|herb\w*|horses?|insects?|lizards?|mammals?|"
        r"mo(th|n)\w*|orchids?|palms?|pigs?|plants?|primates?|rabbits?|reptiles?|rodents?|rose|"
        r"sharks?|sheep|shrubs?|snakes?|spiders?|trees?|turtles?|vines?|whales?|wolf|family",
    ),
    "film, book or game": (
        "character comedy drama episode fantasy fiction game musical mystery play poem romance "
        "series show soap story strip western",
        r"anime|arcade|author|book|broadcast|cartoon|comics?|computer|directed|fiction\w*|films?|"
        r"manga|nintendo|novels?|playstation|playwright|published|role-playing|sitcom|starring|"
        r"television|tv|video|written|wrote",
    ),
    "medicine or chemistry": (
        "alcohol base chemical condition deficiency element gas injury metal mineral operation "
        "plastic procedure salt substance sugar treatment",
        r"acids?|atomic|body|brain|carbon|chemi\w+|compounds?|disease|formula|hydrogen|medical|"
        r"medicine|metal\w*|molecul\w+|oxygen|patients?|skin|surg\w+|symbol|toxic",
    ),
    "music": (
        "conductor duo instrument label producer rhythm scale single suite trio tune",
        r"album|band|composer|dance|jazz|music\w*|orchestra\w*|pop|record|rock|singer|song|string",
    ),
    "place": (
        "area bay capital cape center coast colony community country locality nation park plain "
        "port region republic resort sea state summit territory ward",
        r"africa\w*|america\w*|asia\w*|australia\w*|border\w*|california|canada|capital|city|coast"
        r"\w*|county|east\w*|england|europe\w*|france|germany|india|island|italy|japan|located|"
        r"north\w*|province|scotland|south\w*|spain|texas|wales|west\w*",
    ),
    "sport": (
        "arena center champion championship club coach competition contest cup driver event "
        "fighter forward franchise guard league manager match player race receiver rider sailor "
        "team tournament runner",
        r"athlet\w+|baseball|basketball|boxing|chess|cricket|cycl\w+|football\w*|formula one|golf|"
        r"hockey|horse|indycar|lacrosse|major league|marathon|nascar|olympic\w*|racing|rugby|"
        r"skating|ski\w*|soccer|softball|sport\w*|swimming|tennis|volleyball|wrestling",
    ),
}
ONLY_WITH: dict[tuple[str, str], str] = {
    (subject, noun): words for subject, (nouns, words) in _UNSURE.items() for noun in nouns.split()
}
#: Nouns of several subjects, or of none, wherever these words stand before them.
NEVER = re.compile(
    r"\b(?:political|religious|mythical|mythological|legendary|programming|software|military|"
    r"army|naval|stock|biblical|fictional city|fictional town|list|computer science|data structure|"
    r"disc jockey|geography|economy|indigenous|bacteria\w*)\b",
    re.I,
)

#: Passages of a subject in each split, and how many of an article at most.
PASSAGES = {"train": 40, "validation": 15, "test": 120}
OF_ARTICLE = {"train": 1, "validation": 1, "test": 3}
MIN_WORDS, MAX_WORDS = 25, 45
#: Passages begin within so many characters of an article: later it turns to other things.
LEAD_CHARACTERS = 3_000

#: Pre-training: characters in all, and of an article.
ARTICLES_CHARACTERS, ARTICLE_CHARACTERS = 7_000_000, 6_000

#: A demonstration need not be about these things.
UNWANTED = re.compile(
    r"\b(?:rap(?:e|ed|ist)|suicid\w+|porn\w*|nazi\w*|sex\w*|slave\w*|massacr\w+|molest\w*|holocaust|"
    r"genocid\w+|murder\w*|tortur\w+|nigg\w+|kill(?:ed|ing)s?|terroris\w+|penis|vagin\w+|incest)\b",
    re.I,
)
#: Letters of other scripts, and what a formula or a list leaves behind.
ODD = re.compile(r"[^\x20-\x7eà-öø-ÿÀ-ÖØ-Þ–—’‘“”£°é×½]|\(\s*[,;)]|[<>{}|=\\]| ,")


@dataclass(frozen=True)
class Article:
    number: str
    title: str
    text: str


def read_articles(path: Path) -> list[Article]:
    return [Article(str(row["id"]), row["title"].strip(), row["text"]) for row in read_rows(path)]


_VERB = re.compile(
    r"\b(?:is|was|are|were) (?:(?:also|still|now|once|generally|usually|commonly) )?"
    r"(?:one of the|any of (?:the|several|various)|a|an|the)\s+(.*)"
)
#: "A kind of tree" is a tree.
_KIND = re.compile(
    r"^(?:\w+ ){0,4}?(?:species|genus|type|kind|form|group|family|breed|variety|order|class|name|"
    r"member|series|set|part|piece|work|style) of (?:the |a |an )?(.*)"
)
#: What follows the noun phrase.
_AFTER = re.compile(
    r"\s*(?:[,;:.()]|\b(?:in|of|from|by|for|with|that|which|who|whose|on|at|to|located|situated|"
    r"native|based|written|directed|published|released|produced|made|created|founded|formed|played|"
    r"used|found|caused|known|between|near|about|under|where|when|as|set|belonging|consisting|"
    r"containing|characterized|lying|born|since|during|starring|recorded|performed|originally|"
    r"developed|considered|and)\b).*"
)


def head_nouns(sentence: str) -> list[str]:
    """The nouns that a first sentence may say its subject is, lower case, singular."""
    match = _VERB.search(sentence)
    if match is None:
        return []
    phrases = [match[1]]
    if kind := _KIND.match(match[1]):
        phrases.insert(0, kind[1])
    nouns = []
    for phrase in phrases:
        words = re.findall(r"[A-Za-z]+", _AFTER.sub("", phrase))
        if words:
            nouns.append(words[-1].lower())
    return [single for noun in nouns for single in _singular(noun)]


def _singular(noun: str) -> list[str]:
    if noun in ("species", "series", "fish"):
        return [noun]
    if noun.endswith("ies"):
        return [noun, noun[:-3] + "y"]
    return [noun, noun[:-1]] if noun.endswith("s") else [noun]


def subject_of(article: Article) -> str | None:
    """What the first sentence says that an article is about; None where it is none of the
    subjects, or more than one."""
    first = next(iter(segment("en", article.text.split("\n", 1)[0][:600])), "")
    if NEVER.search(first):
        return None
    words = {noun: subject for subject, listed in NOUNS.items() for noun in listed.split()}
    for noun in head_nouns(re.sub(r"\([^()]*\)", "", first)):
        subject = words.get(noun)
        if subject is None:
            continue
        needed = ONLY_WITH.get((subject, noun))
        if needed and not re.search(rf"\b(?:{needed})\b", first, re.I):
            return None
        return subject
    return None


def passages(article: Article, number: int) -> list[str]:
    """The first `number` passages of MIN_WORDS to MAX_WORDS words, whole sentences."""
    chosen: list[str] = []
    passed = 0
    for line in article.text.split("\n"):
        if passed > LEAD_CHARACTERS or len(chosen) == number:
            break
        passed += len(line)
        current: list[str] = []
        words = 0
        if len(line.split()) < MIN_WORDS:
            continue  # a heading, a row of a list
        for sentence in (sentence.strip() for sentence in segment("en", line)):
            size = len(sentence.split())
            if words + size > MAX_WORDS:
                current, words = [], 0
            if size <= MAX_WORDS and not (ODD.search(sentence) or UNWANTED.search(sentence)):
                current.append(sentence)
                words += size
            else:
                current, words = [], 0
            if words >= MIN_WORDS:
                chosen.append(" ".join(current))
                current, words = [], 0
                if len(chosen) == number:
                    break
    return chosen


def label(articles: list[Article]) -> tuple[list[dict[str, object]], set[str]]:
    """All labelled passages, and the numbers of their articles."""
    of: dict[str, list[Article]] = {subject: [] for subject in NOUNS}
    for article in articles:
        if UNWANTED.search(article.title):
            continue
        subject = subject_of(article)
        if subject is not None and len(passages(article, OF_ARTICLE["test"])) == OF_ARTICLE["test"]:
            of[subject].append(article)
    rows: list[dict[str, object]] = []
    used: set[str] = set()
    for subject, found in of.items():
        order = generator(0, f"subject {subject}").permutation(len(found))
        queue = [found[i] for i in order]
        print(f"{subject}: {len(queue)} articles")
        for split, number in PASSAGES.items():
            for _ in range(number // OF_ARTICLE[split]):
                if not queue:
                    raise SystemExit(f"{subject}: too few articles")
                article = queue.pop()
                used.add(article.number)
                for text in passages(article, OF_ARTICLE[split]):
                    rows.append(
                        {"split": split, "subject": subject, "article": article.title, "text": text}
                    )
    return rows, used


def to_read(articles: list[Article], used: set[str]) -> list[dict[str, object]]:
    """Articles to pre-train on, none of which has labelled passages."""
    rows: list[dict[str, object]] = []
    total = 0
    order = generator(0, "articles").permutation(len(articles))
    for article in (articles[i] for i in order):
        if article.number in used or UNWANTED.search(article.title):
            continue
        kept: list[str] = []
        size = 0
        for line in article.text.split("\n"):
            if size + len(line) > ARTICLE_CHARACTERS:
                break
            if len(line.split()) >= 8 and not UNWANTED.search(line):
                kept.append(line)
                size += len(line)
        if size < 600:
            continue
        rows.append({"title": article.title, "text": "\n".join(kept)})
        total += size
        if total >= ARTICLES_CHARACTERS:
            return rows
    raise SystemExit("too few articles")


LICENSE = """\
# The articles of `bertine demo`

The texts in `subjects.jsonl.zst` and `articles.jsonl.zst` are taken from articles of the English
Wikipedia, written by its contributors, and come under the
[Creative Commons Attribution-ShareAlike](https://creativecommons.org/licenses/by-sa/4.0/) licence:
who passes them on, changed or not, names the articles and keeps the licence. The history of an
article, with its authors, is at `https://en.wikipedia.org/wiki/TITLE?action=history`.

They were made by `tools/make_articles.py`. What was changed: of an article only some
paragraphs or sentences are here; headings and short lines were left out, and paragraphs with words
that a demonstration need not repeat.

* `subjects.jsonl.zst`: {labelled:,} passages of {low} to {high} words, whole sentences, with what
  they are about. The label was read off the first sentence of the article by rule; a few may be
  wrong.
* `articles.jsonl.zst`: the beginnings of {unlabelled:,} other articles, {megabytes:.1f} MB of text,
  without labels.

## Articles with labelled passages

{names}

## Articles to learn from

{others}
"""


def write_licence(
    path: Path, labelled: list[dict[str, object]], unlabelled: list[dict[str, object]]
) -> None:
    lines = []
    for subject in NOUNS:
        titles = sorted({str(row["article"]) for row in labelled if row["subject"] == subject})
        lines.append(f"**{subject}**: {'; '.join(titles)}.")
    text = LICENSE.format(
        labelled=len(labelled),
        unlabelled=len(unlabelled),
        megabytes=sum(len(str(row["text"]).encode()) for row in unlabelled) / 1e6,
        low=MIN_WORDS,
        high=MAX_WORDS,
        names="\n\n".join(lines),
        others="; ".join(sorted(str(row["title"]) for row in unlabelled)) + ".",
    )
    write_text(path, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("articles", type=Path, help="the collection, WIKI.jsonl.zst")
    parser.add_argument("--out", type=Path, default=Path("src/bertine/contrib/demo/data"))
    options = parser.parse_args()
    collection = read_articles(options.articles)
    labelled, used = label(collection)
    unlabelled = to_read(collection, used)
    write_rows(options.out / "subjects.jsonl.zst", labelled)
    write_rows(options.out / "articles.jsonl.zst", unlabelled)
    write_licence(options.out / "LICENSE-articles.md", labelled, unlabelled)
    print(Counter((row["split"], row["subject"]) for row in labelled))
    for name in ("subjects.jsonl.zst", "articles.jsonl.zst", "LICENSE-articles.md"):
        print(f"{options.out / name}: {(options.out / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
