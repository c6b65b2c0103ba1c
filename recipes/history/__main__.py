"""The story as one command: word2vec, ELMo, GPT-1, BERT and those after it on the same text, in
the same CPU time each, scored on the same tasks, over several seeds, on one page.

    python recipes/history --corpus FILE_OR_FOLDER ... --glue FOLDER --out FOLDER

Half of the time is for training, divided evenly among the systems, and half for scoring. Every
result is written when it is there; the same command goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from story_data import (
    ENTITIES,
    PAIRS,
    TASKS,
    write_entities_part,
    write_glue_part,
    write_text_parts,
)
from story_page import score_lines, write_page
from systems import BY_NAME, SHAPE, SYSTEMS, USUAL, Material, System, vocabulary_options

import bertine
from bertine.commands.parser import Parser, real, whole
from bertine.core.console import human_time, logger, plural
from bertine.core.cpu import cores
from bertine.core.errors import BertineError
from bertine.core.files import lock_folder, read_json_object, write_json
from bertine.core.process import run_program
from bertine.core.workers import run_processes

#: The share of the time that is for training.
_TRAINING = 0.5
#: Megabytes of text for a minute of the whole, where nothing is said.
_TEXT = 0.5
#: Examples that are learned from in a second of one core, and seconds that a run takes besides:
#: of the shape here, so that the scoring takes about its half.
_PACE, _BESIDES = 100.0, 12.0
_LEAST_EXAMPLES, _MOST_EXAMPLES = 32, 20_000
#: Pairs of each paradigm of BLiMP, for a minute of the whole, and at most.
_PAIRS_A_MINUTE, _MOST_PAIRS = 0.5, 100


@dataclass(frozen=True)
class Plan:
    """What is done, and in which time.

    Attributes:
        seconds: of CPU time, for the training of each system.
        examples: of training, of each task at most.
        pairs: of each paradigm.
        seeds: of scoring.
    """

    seconds: float
    examples: int
    pairs: int
    seeds: int


def plan_of(given: dict[str, Any], systems: Sequence[System]) -> Plan:
    """Divide the time."""
    total = 60.0 * given["minutes"] * cores()
    tasks = len(TASKS) + (given["entities"] is not None)
    runs = sum(1 + system.finetuned for system in systems) * tasks * given["seeds"]
    of_run = (1 - _TRAINING) * total / runs
    most = int((of_run - _BESIDES) * _PACE)
    examples = given["examples"] or min(max(most, _LEAST_EXAMPLES), _MOST_EXAMPLES)
    pairs = min(max(1, int(_PAIRS_A_MINUTE * given["minutes"])), _MOST_PAIRS)
    return Plan(_TRAINING * total / len(systems), examples, pairs, given["seeds"])


def scoring_jobs(
    plan: Plan, systems: Sequence[System], entities: bool, pairs: bool
) -> list[dict[str, Any]]:
    """List what is scored: by seed first, so that every system has its first scores early."""
    metrics = {task.name: task.metric for task in TASKS}
    if entities:
        metrics[ENTITIES] = "f1"
    jobs = [
        {"system": system.name, "way": way, "task": task, "metric": metric, "seed": seed}
        for seed in range(plan.seeds)
        for task, metric in metrics.items()
        for system in systems
        for way in ("frozen", "fine-tuned")
        if way == "frozen" or (system.finetuned and (task != ENTITIES or system.tags_words))
    ]
    jobs += [
        {"system": s.name, "way": "language model", "task": PAIRS, "metric": "accuracy", "seed": 0}
        for s in systems
        if pairs and s.scores_pairs
    ]
    for job in jobs:
        job["name"] = "-".join(
            str(job[key]).replace(" ", "-") for key in ("system", "way", "task", "seed")
        )
    return [{"kind": "score", **job} for job in jobs]


class Story:
    """The folder of a story, and its jobs.

    Args:
        given: the arguments.

    Raises:
        BertineError: the folder holds a story of other arguments, or something else.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.given, self.out = given, given["out"].absolute()
        # In the order of time, however they are named; teachers are trained first of all.
        self.systems = [system for system in SYSTEMS if system.name in given["systems"]]
        self.plan = plan_of(given, self.systems)
        self.material = Material(
            self.out, self.out / "text.jsonl", self.out / "held-out.jsonl", given["vocab_size"]
        )
        paths = {"corpus": [str(path.absolute()) for path in given["corpus"]]}
        for name in ("glue", "entities", "blimp"):
            paths[name] = [] if given[name] is None else [str(given[name].absolute())]
        values = {name: given[name] for name in ("minutes", "seeds", "megabytes", "vocab_size")}
        self.settings: dict[str, Any] = {
            **paths, **values, "systems": [s.name for s in self.systems], "shape": SHAPE,
            **asdict(self.plan),
        }  # fmt: skip
        file = self.out / "story.json"
        if self.out.exists() and not self.out.is_dir():
            raise BertineError(f"{self.out}: is a file; choose another folder")
        if file.exists():
            known = read_json_object(file)
            for name, value in json.loads(json.dumps(self.settings)).items():
                if known.get(name) != value:
                    raise BertineError(
                        f"{self.out}: was begun with {name} = {known.get(name)}, not {value}; give "
                        "the same, or choose another folder"
                    )
        elif self.out.exists() and any(self.out.iterdir()):
            raise BertineError(f"{self.out}: holds something else; choose another folder")

    def check(self) -> None:
        """Look for what is missing, before anything takes time.

        Raises:
            BertineError: a file is not there; a system's teacher is not among the systems.
        """
        from bertine.datasets.glue import glue_task, read_glue
        from bertine.inference.minimal_pairs.evaluate_pairs import holds_pairs
        from bertine.tokenization.documents import Corpus

        for system in self.systems:
            if system.teacher and system.teacher not in self.given["systems"]:
                raise BertineError(
                    f"{system.name} learns from {system.teacher}; add it to --systems"
                )
        Corpus(self.given["corpus"])
        for task in TASKS:
            _, dev_sets = read_glue(self.given["glue"], glue_task(task.name))
            if not dev_sets:
                raise BertineError(f"{self.given['glue']}: has no dev.tsv of {task.name}")
        if self.given["entities"] is not None:
            for name in ("train.conll", "dev.conll"):
                if not (self.given["entities"] / name).is_file():
                    raise BertineError(f"{self.given['entities']}: has no {name}")
        if self.given["blimp"] is not None and not holds_pairs(self.given["blimp"]):
            raise BertineError(f"{self.given['blimp']}: has no minimal pairs (JSON lines as BLiMP)")

    def prepare(self) -> None:
        """Make the text, vocabularies, stores and examples that are not there."""
        material, given = self.material, self.given
        if not material.held_out.exists():
            logger.info("--- text")
            size = int(1e6 * (given["megabytes"] or max(0.05, _TEXT * given["minutes"])))
            write_text_parts(given["corpus"], material.text, material.held_out, size)
        for name in dict.fromkeys(s.tokenizer for s in self.systems if s.tokenizer):
            vocabulary, store = material.vocabulary(name), material.store(name)
            if not vocabulary.exists():
                logger.info(f"--- vocabulary: {name}")
                vocabulary.parent.mkdir(exist_ok=True)
                bertine.train_vocab(
                    material.text,
                    out=vocabulary,
                    vocab_size=material.vocab_size,
                    **vocabulary_options(name),
                )
            if not store.exists():
                logger.info(f"--- store: {name}")
                store.parent.mkdir(exist_ok=True)
                bertine.prepare(material.text, tokenizer=vocabulary, out=store)
        examples = self.out / "examples"
        for task in TASKS:
            if not (examples / "glue" / task.name).exists():
                (examples / "glue").mkdir(parents=True, exist_ok=True)
                write_glue_part(given["glue"], examples / "glue", task, self.plan.examples)
        if given["entities"] is not None and not (examples / "entities").exists():
            write_entities_part(given["entities"], examples / "entities", self.plan.examples)

    def do(self, jobs: Sequence[dict[str, Any]], expected: float) -> None:
        """Do the jobs whose results are not there, and write each when it is.

        Args:
            expected: CPU seconds of a job, until one has been seen.

        Raises:
            BertineError: one went wrong.
        """
        for folder in ("results", "logs", "runs", "scoring"):
            (self.out / folder).mkdir(exist_ok=True)
        left = [job for job in jobs if not self.result(job["name"]).exists()]
        if not left:
            return
        shared = {name: str(value) if isinstance(value, Path) else value
                  for name, value in asdict(self.material).items()}  # fmt: skip
        lines = [
            json.dumps({**job, "material": shared, "log": str(self.out / "logs" / job["name"])})
            for job in left
        ]
        times: list[float] = []
        began, processes = time.monotonic(), min(cores(), len(left))

        def told(number: int, message: dict[str, Any]) -> None:
            job = left[number]
            if "done" not in message:
                raise BertineError(f"{job['name']}: {message.get('error') or message['lost']}")
            found = message["done"]
            write_json(self.result(job["name"]), {**job, **found})
            times.append(found["cpu"])
            todo = len(left) - len(times)
            each = (time.monotonic() - began) / len(times)
            rest = f"; about {human_time(each * todo)} left" if todo else ""
            value = f" {100 * found['score']:.1f}" if "score" in found else ""
            logger.info(f"{job['name']}:{value} in {found['cpu']:.0f} s{rest}")

        logger.info(f"{plural(len(left), 'job')}, at most about "
            f"{human_time(expected * len(left) / processes)}")  # fmt: skip
        here = os.pathsep.join(
            [str(Path(__file__).parent), str(Path(bertine.__file__).parents[1]),
             *filter(None, [os.environ.get("PYTHONPATH")])]
        )  # fmt: skip
        # One thread each, however many there are.
        alone = {"PYTHONPATH": here, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
        run_processes(lines, ["story_jobs"], told, processes, more=lambda _: alone)

    def result(self, name: str) -> Path:
        return self.out / "results" / f"{name}.json"


def history(arguments: Sequence[str]) -> None:
    """What the command does."""
    assert __doc__ is not None
    parser = Parser("python recipes/history", __doc__)
    parser.add_argument(
        "--corpus", metavar="PATH", type=Path, nargs="+", required=True, help="files and folders"
    )
    parser.add_argument(
        "--glue", metavar="DIR", type=Path, required=True, help="folder of the tasks' folders"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="of all it makes")
    parser.add_argument(
        "--entities", metavar="DIR", type=Path, help="with train.conll and dev.conll (WNUT-17)"
    )
    parser.add_argument("--blimp", metavar="PATH", type=Path, help="minimal pairs")
    parser.add_argument(
        "--systems", metavar="NAME", nargs="+", choices=list(BY_NAME), default=list(USUAL),
        help=f"of {', '.join(BY_NAME)}; {', '.join(USUAL)} where nothing is said",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", metavar="X", type=real(0.01), default=60.0,
        help="of all, on all cores; 60 where nothing is said",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", metavar="N", type=whole(1), default=3, help="of scoring; 3 where nothing is said"
    )
    parser.add_argument(
        "--megabytes", metavar="X", type=real(0.001), default=None,
        help="of text; half as many as there are minutes where nothing is said",
    )  # fmt: skip
    parser.add_argument(
        "--vocab-size", metavar="N", type=whole(50), default=8192, help="pieces, or words of ELMo's"
    )
    parser.add_argument(
        "--examples", metavar="N", type=whole(8), default=None,
        help="of training of each task at most; by the time where nothing is said",
    )  # fmt: skip
    story = Story(parser.parse(arguments))
    story.check()
    story.out.mkdir(parents=True, exist_ok=True)
    with lock_folder(story.out, f"{story.out}: another process is at work there"):
        tell(story)


def tell(story: Story) -> None:
    """Train, score and write the page."""
    plan, systems = story.plan, story.systems
    write_json(story.out / "story.json", story.settings)
    logger.info(
        f"{plural(len(systems), 'system')}, {human_time(plan.seconds)} of CPU time each for "
        f"training, as much again for scoring: {plural(plan.seeds, 'seed')}, at most "
        f"{plan.examples:,} training examples a task"
        + (f", {plan.pairs} pairs of each paradigm" if story.given["blimp"] else "")
        + "; text, vocabularies and stores are made beforehand"
    )
    story.prepare()
    for learned in (False, True):
        jobs = [
            {"kind": "train", "name": f"train-{s.name}", "system": s.name, "seconds": plan.seconds}
            for s in systems
            if bool(s.teacher) == learned
        ]
        if jobs:
            logger.info("--- training" + (" of students" if learned else ""))
            story.do(jobs, plan.seconds)
    logger.info("--- scoring")
    scoring = scoring_jobs(
        plan, systems, story.given["entities"] is not None, story.given["blimp"] is not None
    )
    for job in scoring:
        if job["task"] == PAIRS:
            job |= {"pairs": str(story.given["blimp"].absolute()), "each": plan.pairs}
    story.do(scoring, plan.seconds * len(systems) / len(scoring))
    looks = [{"kind": "look", "name": f"look-{s.name}", "system": s.name} for s in systems]
    story.do(looks, 5.0)
    results = [read_json_object(story.result(job["name"])) for job in scoring]
    trained = {s.name: read_json_object(story.result(f"train-{s.name}")) for s in systems}
    seen = {s.name: read_json_object(story.result(f"look-{s.name}")) for s in systems}
    page = story.out / "history.html"
    write_page(page, story.out, systems, asdict(plan), story.settings, results, trained, seen)
    print("\n".join(score_lines(systems, results)))
    print(f"page: {page}")


def main() -> int:
    """Run the program; return its exit status."""
    return run_program(history)


if __name__ == "__main__":
    sys.exit(main())
