"""Recognize the language of texts, and choose the model to start from if the user names none.

A language is recognized by its script, and among those of one script by frequent short words. That
is enough to tell for which of a few models texts are; it is no recognizer of single sentences.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from bertine.core.console import logger
from bertine.core.errors import BertineError
from bertine.core.model_folders import MINILM, MINILM_PACKAGE, minilm_folder
from bertine.core.names import option

#: Language; script; a published model ("": none that opens here); frequent words, or letters that
#: others of its script do not have. The first language of a script is taken if no word decides.
_LANGUAGES = """
English; Latin; FacebookAI/roberta-base; the and of to is that it was for on are with as i you at \
be this have not what my but can how we they from or do by a an so me your just if when will
German; Latin; google-bert/bert-base-german-cased; der die das und ist nicht ich zu mit auf für ein
French; Latin; almanach/camembert-base; le la les et des est une un pas que qui dans pour je vous
Spanish; Latin; dccuchile/bert-base-spanish-wwm-cased; el la los las de que en un una es no por muy
Italian; Latin; dbmdz/bert-base-italian-cased; il la di che è a non un una per sono del della con
Portuguese; Latin; neuralmind/bert-base-portuguese-cased; de a e que não um uma da em para os muito
Dutch; Latin; GroNLP/bert-base-dutch-cased; de het een en van is niet ik dat op te zijn met voor
Swedish; Latin; KB/bert-base-swedish-cased; och att det är en som på för inte med jag av den har
Danish or Norwegian; Latin; ; og det er at på en ikke jeg som til med af av har den et vi de
Finnish; Latin; TurkuNLP/bert-base-finnish-cased-v1; ja on ei se että oli hän minä kun mutta ole
Polish; Latin; dkleczek/bert-base-polish-cased-v1; w i z nie na się jest że ale po mam był bardzo
Czech; Latin; ; a je na se že jsem ale jak není jsou jako tak byl za ve velmi
Hungarian; Latin; SZTAKI-HLT/hubert-base-cc; a az és nem hogy jó egy ez volt már csak meg nagyon
Romanian; Latin; dumitrescustefan/bert-base-romanian-cased-v1; și de în nu este că a la mai foarte
Turkish; Latin; dbmdz/bert-base-turkish-cased; ve bir bu için çok de da ile ben var değil daha gibi
Indonesian; Latin; indobenchmark/indobert-base-p1; yang dan di ini itu tidak dengan untuk saya dari
Vietnamese; Latin; ; và là của không có tôi cho được một những này người rất với trong
Russian; Cyrillic; DeepPavlov/rubert-base-cased; и в не на что я с как это но по у так мы из
Ukrainian; Cyrillic; ; і в не на що з як це та до є у я від але
Bulgarian; Cyrillic; ; и на да се не за от е в че това са с съм много
Arabic; Arabic; asafaya/bert-base-arabic; في من على أن إلى لا ما هذا هذه التي كان مع عن
Persian; Arabic; HooshvareLab/bert-base-parsbert-uncased; و در به از که این را با است برای یک
Urdu; Arabic; ; کے ہے میں کی اور سے کا کو نے یہ نہیں ہیں پر
Chinese; Chinese; google-bert/bert-base-chinese
Japanese; Japanese
Korean; Korean; klue/bert-base
Greek; Greek; nlpaueb/bert-base-greek-uncased-v1
Hebrew; Hebrew; onlplab/alephbert-base
Hindi; Devanagari; google/muril-base-cased
"""
#: Published models of about a hundred languages, the smaller one first.
_MULTILINGUAL = ("intfloat/multilingual-e5-small", "FacebookAI/xlm-roberta-base")

#: Names of scripts, by the first word of their characters' names, where the two differ.
_SCRIPTS = {"CJK": "Chinese", "HANGUL": "Korean", "HIRAGANA": "Japanese", "KATAKANA": "Japanese"}
#: Scripts with about a character for what is a word, or half of one, in others.
_DENSE = ("Chinese", "Japanese", "Korean")
#: The characters of a word in other scripts.
_WORD = 5
#: The share of kana among Chinese characters from which a text is Japanese.
_KANA = 0.1
#: The most texts to look at, and the most characters of each.
_TEXTS, _LENGTH = 1000, 1000
#: The share of the texts that must be in one language.
_MOST = 0.75
#: The fewest words of a language's list among the words of texts in it, and the fewest words of an
#: average text for which that is asked: keywords and names are of no language.
_SHARE, _WORDS = 0.04, 4


@cache
def script_of(character: str) -> str:
    """Return the common name of a letter's script; "" for signs that have none."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    name = unicodedata.name(character, "").split(" ")[0]
    return _SCRIPTS.get(name, name.capitalize())


@cache
def _table() -> dict[str, tuple[str, str, dict[str, float]]]:
    """Return for each language its script, a published model, and its words, each with one divided
    by the number of languages that have it."""
    lines = _LANGUAGES.strip().splitlines()
    rows = [[*map(str.strip, f"{line};;".split(";")[:4])] for line in lines]
    shared = Counter(word for row in rows for word in {*row[3].split()})
    return {
        name: (script, model, {word: 1 / shared[word] for word in words.split()})
        for name, script, model, words in rows
    }


def languages_of(texts: Sequence[str]) -> Counter[str]:
    """Count texts by language; texts without letters, or without a frequent word,
    are not counted. If hardly a word is a frequent one, the language is called by its script
    ("Thai", "Cyrillic"); it is "" for keywords in Latin script, which may be of any language."""
    languages: Counter[str] = Counter()
    #: By script: each text's language, its frequent words of that language, and all of its words.
    read: dict[str, list[tuple[str, float, int]]] = {}
    for text in texts:
        script = _script_of_text(text[:_LENGTH])
        own = {name: row[2] for name, row in _table().items() if row[0] == script}
        if len(own) < 2:
            languages.update([next(iter(own), script)] * bool(script))
            continue
        words = re.findall(r"\w+", text[:_LENGTH].casefold())
        hits = {name: sum(listed.get(word, 0.0) for word in words) for name, listed in own.items()}
        if script == "Latin":  # an English word has no other letters
            hits["English"] -= sum(not word.isascii() for word in words)
        best = max(hits, key=lambda name: hits[name])
        read.setdefault(script, []).append((best, max(0.0, hits[best]), len(words)))
    for script, rows in read.items():
        all_hits, all_words = sum(row[1] for row in rows), sum(row[2] for row in rows)
        if all_hits >= _SHARE * all_words:
            languages.update(best for best, count, _ in rows if count)
        else:
            keywords = script == "Latin" and all_words < _WORDS * len(rows)
            languages["" if keywords else script] += len(rows)
    return languages


def _script_of_text(text: str) -> str:
    """Return the script of most words of a text; "" without letters."""
    counts: Counter[str] = Counter()
    for character, times in Counter(text).items():
        if script := script_of(character):
            counts[script] += times * (_WORD if script in _DENSE else 1)
    if counts["Japanese"] > _KANA * counts["Chinese"]:
        counts["Japanese"] += counts.pop("Chinese", 0)
    return max(counts, key=lambda script: counts[script], default="")


def model_for(items: Sequence[Any]) -> str:
    """Choose the best of the installed models for the language of the texts of `items`, which have
    ``texts``, and say so: all-MiniLM for English, or bertine-en without it; bertine-zh for Chinese.

    Raises:
        BertineError: the texts are in another language, or in several; the message names published
            models.
    """
    counts = languages_of([" ".join(item.texts) for item in items[:: len(items) // _TEXTS + 1]])
    if not counts:
        raise BertineError(
            f"no model is named, and the texts have no letters to choose one by; give "
            f"{option('model')}"
        )
    language, most = counts.most_common(1)[0]
    if most < _MOST * counts.total():
        first = [
            f"{name or 'too short to tell'} {count / counts.total():.0%}"
            for name, count in counts.most_common(4)
        ]
        raise _no_model(f"in several languages ({', '.join(first)})")
    if language not in ("English", "Chinese", ""):
        known = language in _table()
        words = language if known else f"in {language} script, in a language that is not recognized"
        raise _no_model(words, *filter(None, [_table()[language][1]] if known else []))
    model, better = "bertine-zh", ""
    if language != "Chinese":
        model = MINILM if minilm_folder() is not None else "bertine-en"
        if model != MINILM:
            better = f"'pip install {MINILM_PACKAGE}' brings a better one, and "
    larger = option("model", f"hf:{_table()[language or 'English'][1]}")
    assumed = "" if language else " (assumed: the texts are too short to tell)"
    logger.info(
        f"model: {model}, the best one installed for {language or 'English'} texts{assumed}; "
        f"{better}{larger} is larger and better"
    )
    return model


def _no_model(texts: str, *own: str) -> BertineError:
    """Return the error that no installed model is for such `texts`; `own` are published models of
    their language."""
    names = [option("model", f"hf:{name}") for name in (*own, *_MULTILINGUAL)]
    return BertineError(
        f"no model is named, and none is installed for the texts, which are {texts}; take a "
        f"published one, such as {', '.join(names[:-1])} or {names[-1]}"
    )
