"""Files in SQuAD's format about the toy language, v1.1 and v2.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import toys
from bertine.core.rng import generator


def toy_squad(articles: int, *, v2: bool = False, seed: int = 0) -> dict[str, Any]:
    """Paragraphs of three sentences, one about an animal and two about dishes, and three questions
    where the animal does what it does. In v2.0 a fourth asks about a dish that is not there."""
    draw = generator(seed, "toy squad")
    animals, dishes = list(toys.TOPICS)[:4], list(toys.TOPICS)[4:]
    data = []
    for number in range(articles):
        animal = animals[draw.integers(4)]
        *there, missing = (dishes[i] for i in draw.permutation(4)[:3])
        order = draw.permutation(3).tolist()
        topics = [[animal, *there][i] for i in order]
        adjectives = draw.choice(toys.ADJECTIVES, 3).tolist()
        context = " ".join(map(toys.sentence, topics, adjectives))
        qas = []
        for index, topic in enumerate([animal] * 3 + [missing] * v2):
            verb, place = toys.TOPICS[topic]
            start = context.find(f" {place} ") + 1
            answers = [{"text": place, "answer_start": start}] if topic == animal else []
            kind = {"is_impossible": not answers} if v2 else {}
            question = f"the {toys.ADJECTIVES[index]} {topic} {verb} in"
            name = f"{seed}-{number}-{index}"
            qas.append({"id": name, "question": question, "answers": answers, **kind})
        data.append({"title": f"T{number}", "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "v2.0" if v2 else "1.1", "data": data}


def write_squad(folder: Path, *, v2: bool = False, articles: int = 40, dev: int = 10) -> Path:
    """``train-v….json`` and ``dev-v….json`` in `folder`; the training file."""
    folder.mkdir(parents=True, exist_ok=True)
    version = "2.0" if v2 else "1.1"
    for part, count, seed in (("train", articles, 0), ("dev", dev, 1)):
        content = toy_squad(count, v2=v2, seed=seed)
        (folder / f"{part}-v{version}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder / f"train-v{version}.json"
