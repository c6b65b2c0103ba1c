"""Fetch published models and data sets by name: ``hf:ORGANIZATION/NAME@REVISION`` from the Hugging
Face hub, ``modelscope:…`` from ModelScope.

The hubs' own libraries do it, with their cache, environment variables, tokens and progress bars.
The prefix is the asking: without it nothing goes to the network. A branch (``main``, where no
revision is given) is looked up once in a process; if the hub cannot be reached, what the cache
holds of it is used, and a note says so. A commit that is wholly in the cache is not looked up.
"""

from __future__ import annotations

import glob
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bertine.core.console import logger, plural, shows_bars
from bertine.core.contrib import registered
from bertine.core.errors import BertineError, require_packages
from bertine.core.files import os_errors, read_json_object, sha256_file
from bertine.core.names import FAMILIES, PRESETS, option
from bertine.core.text import one_line

# Names.

#: What is published under a name.
Kind = Literal["model", "dataset"]
#: (paths of all files of a repository) → those that are needed; it may raise a BertineError.
Choice = Callable[[Sequence[str]], Sequence[str]]

_NAME = re.compile(
    r"(?P<hub>hf|modelscope):/{0,2}(?P<repository>\w[\w.-]*(?:/\w[\w.-]*)?)"
    r"(?:/(?P<part>[^@\s]+))?(?:@(?P<revision>[^@\s]+))?"
)
#: Where both libraries keep a revision of a model in their caches.
_CACHED = re.compile(r".*/models(--|/)([^/]+)/snapshots/([^/]+)")


@dataclass(frozen=True)
class PublishedName:
    """A name that begins with the prefix of a hub.

    Attributes:
        hub: the prefix, ``hf`` or ``modelscope``.
        repository: ``ORGANIZATION/NAME``, or an old ``NAME`` without an organization.
        revision: a branch, tag or commit; None: the main branch.
        part: what follows the repository, such as the configuration of a data set; "": nothing.
    """

    hub: str
    repository: str
    revision: str | None = None
    part: str = ""

    @classmethod
    def parse(cls, text: object) -> PublishedName | None:
        """Read a text or path; return None if it has no such prefix.

        Raises:
            BertineError: what follows the prefix cannot be a name.
        """
        text = str(text)
        if not text.startswith(("hf:", "modelscope:")):
            return None
        if (match := _NAME.fullmatch(text)) is None:
            raise BertineError(
                f"{text}: is not a name; expected {text.partition(':')[0]}:ORGANIZATION/NAME, or "
                "with @REVISION after it"
            )
        return cls(**{**match.groupdict(), "part": match["part"] or ""})

    def may_be(self, at: PublishedName) -> bool:
        """Return whether `at` may be the commit that this name, without a revision, once meant."""
        names = (self.repository, _in_full(self).repository)
        return self.revision is None and self.hub == at.hub and at.repository in names

    def __str__(self) -> str:
        part = f"/{self.part}" if self.part else ""
        return f"{self.hub}:{self.repository}{part}" + (
            f"@{self.revision}" if self.revision else ""
        )


# Fetching.

#: What this process has fetched, so that all steps of a piece of work see one revision.
_FETCHED: dict[tuple[PublishedName, Kind], tuple[Path, list[str]]] = {}


def fetch(name: PublishedName, choose: Choice, kind: Kind = "model") -> Path:
    """Fetch the files of a repository that the cache of its hub lacks.

    Args:
        name: of the repository; its part is not read.
        choose: the files that are needed.
        kind: of the repository.

    Returns:
        The folder of the revision in the cache. It holds these files, and maybe others.

    Raises:
        BertineError: there is no such repository or revision, or it is not open to this user; the
            hub or the network fails and the cache lacks a file; or `choose` raises it.
    """
    key = replace(name, part=""), kind
    if key in _FETCHED:
        folder, files = _FETCHED[key]
        if folder.is_dir() and all((folder / file).is_file() for file in choose(files)):
            return folder
    module, get = _HUBS[name.hub]
    require_packages(f"{name.hub}:", [module])
    with _one_line(name, kind):
        _FETCHED[key] = get(key[0], choose, kind)
    return _FETCHED[key][0]


def _from_hugging_face(name: PublishedName, choose: Choice, kind: Kind) -> tuple[Path, list[str]]:
    """Return the folder of a revision and the paths of all files in the repository."""
    from huggingface_hub import HfApi, constants, snapshot_download

    revision = name.revision or "main"
    place: dict[str, Any] = {"repo_id": name.repository, "repo_type": kind}
    folder, files = _held(name, kind)
    current = folder
    if folder is None or files is None or folder.name != revision:
        try:
            timeout = constants.HF_HUB_ETAG_TIMEOUT
            about: Any = HfApi().repo_info(**place, revision=revision, timeout=timeout)
            files = [file.rfilename for file in about.siblings or ()]
            current = None if folder is None else folder.with_name(str(about.sha))
        except Exception as error:
            if not _is_passing(error):
                raise
            reason = _reason(name, kind, error)
            if folder is None:
                raise BertineError(f"{name}: {reason}; it is not in the cache") from error
            files = files or _files_in(folder)
            if lacks := [file for file in choose(files) if not (folder / file).is_file()]:
                raise BertineError(
                    f"{name}: {reason}; the cache does not hold all of it (no {lacks[0]})"
                ) from error
            if not constants.HF_HUB_OFFLINE:
                logger.info(f"{name}: {reason}; revision {folder.name[:12]} in the cache is used")
            return folder, files
    wanted = choose(files)
    lacks = [file for file in wanted if current is None or not (current / file).is_file()]
    if not lacks and current is not None and current == folder:
        return folder, files
    if lacks:
        logger.info(f"{name}: fetching {plural(len(lacks), 'file')} from {constants.ENDPOINT}")
    patterns = [glob.escape(file) for file in wanted]
    try:
        folder = Path(snapshot_download(**place, revision=revision, allow_patterns=patterns))
    except Exception as error:
        if not lacks or not _is_passing(error) or _is_of_disk(error):
            raise
        reason = _reason(name, kind, error)
        raise BertineError(f"{name}: {reason}; {lacks[0]} is not in the cache yet") from error
    return folder, files


def _held(name: PublishedName, kind: Kind) -> tuple[Path | None, list[str] | None]:
    """Return the folder of a revision in the cache of the Hugging Face hub, and all paths of its
    repository, each None if it is not known without asking the hub."""
    import huggingface_hub as hub

    place: dict[str, Any] = {"repo_id": name.repository, "repo_type": kind}
    place["revision"] = name.revision
    try:
        folder = hub.snapshot_download(**place, allow_patterns=[], local_files_only=True)
    except hub.errors.LocalEntryNotFoundError:
        return None, None
    try:
        files = [file.path for file in hub.get_cached_repo_tree(**place)]
    except (AttributeError, hub.errors.CachedRepoTreeNotFoundError):
        return Path(folder), None  # an earlier version of the library, or another function of it
    return Path(folder), files


def _files_in(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def _from_modelscope(name: PublishedName, choose: Choice, kind: Kind) -> tuple[Path, list[str]]:
    """Return the folder of a revision and the paths of all files in the repository."""
    from modelscope_hub import HubApi

    place: dict[str, Any] = {"repo_type": kind, "revision": name.revision}
    try:
        api = HubApi()
        api = HubApi(endpoint=api.resolve_endpoint_for_read(name.repository, repo_type=kind))
        listed = api.list_repo_files(name.repository, **place)
        files = [file.path for file in listed if file.type != "tree"]
        patterns = [glob.escape(file) for file in choose(files)]
        return Path(api.download_repo(name.repository, **place, allow_patterns=patterns)), files
    except Exception as error:
        if isinstance(error, BertineError) or not _is_passing(error):
            raise
        try:
            folder = Path(HubApi().download_repo(name.repository, **place, local_files_only=True))
        except Exception:
            raise error from None
        choose(files := _files_in(folder))
        logger.info(f"{name}: {_reason(name, kind, error)}; the copy in the cache is used")
        return folder, files


#: Prefix → the module that its library is installed with, and the function that uses it.
_HUBS: dict[str, tuple[str, Callable[..., tuple[Path, list[str]]]]] = {
    "hf": ("huggingface_hub", _from_hugging_face),
    "modelscope": ("modelscope_hub", _from_modelscope),
}

# Errors of the hubs.


@contextmanager
def _one_line(name: PublishedName, kind: Kind) -> Iterator[None]:
    """Turn any exception of a hub's library into an error of one line; show its bars only where
    Bertine shows its own."""
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    hide = not shows_bars() and not are_progress_bars_disabled()
    if hide:
        disable_progress_bars()
    try:
        with os_errors(str(name), "fetching it"):
            try:
                yield
            except Exception as error:
                if isinstance(error, BertineError) or _is_of_disk(error):
                    raise
                raise BertineError(f"{name}: {_reason(name, kind, error)}") from error
    finally:
        if hide:
            enable_progress_bars()


def _status(error: BaseException) -> int | None:
    """Return the status with which a hub has answered; None if it has not answered."""
    response = getattr(error, "response", None)
    status = getattr(error if response is None else response, "status_code", None)
    return status if isinstance(status, int) else None


def _is_passing(error: BaseException) -> bool:
    """Return whether the same question may be answered another time."""
    status = _status(error)
    return status is None or status in (408, 429) or status >= 500


def _is_of_disk(error: Exception) -> bool:
    """Return whether the disk refuses to be read or written, and not the hub or the network."""
    if not isinstance(error, OSError) or isinstance(error, ConnectionError):
        return False
    return error.errno is not None and _status(error) is None


def _reason(name: PublishedName, kind: Kind, error: BaseException) -> str:
    """Say what a hub's error means, and what to do."""
    while type(error).__name__ == "LocalEntryNotFoundError" and error.__cause__ is not None:
        error = error.__cause__
    names, status = {base.__name__ for base in type(error).__mro__}, _status(error)
    what = {"model": "model", "dataset": "data set"}[kind]
    login = "'hf auth login'" if name.hub == "hf" else "'modelscope login'"
    if "GatedRepoError" in names:
        return (
            f"its owners let in only those who have asked them; ask on the page of the {what}, and "
            f"log in with {login}"
        )
    if "RevisionNotFoundError" in names:
        return f"there is no revision {name.revision or 'main'}"
    if status in (401, 404):
        return f"there is no such {what}, or it is private; for a private one log in with {login}"
    if status == 403:
        return f"the hub refuses access; log in with {login} as somebody who may read it"
    if status == 429:
        return "the hub takes no more requests for now (429 Too Many Requests); try again later"
    if status is not None and status >= 500:
        return f"the hub has a fault of its own (status {status}); try again later"
    if "OfflineModeIsEnabled" in names:
        return "HF_HUB_OFFLINE is set, so that the hub is not asked"
    if "HFValidationError" in names:
        return f"the hub has no such names ({one_line(error)})"
    problem = one_line(f"{type(error).__name__}: {error}")[:200].removesuffix(": ")
    return f"no connection to the hub, or it broke off ({problem})"


# Models: what is needed of a repository.

#: Files that describe a model and its tokenizer, in the folder or in those of its modules.
_DESCRIPTION = re.compile(
    r"(\d+_\w+/)?((generation_|tokenizer_|sentence_bert_)?config|tokenizer|special_tokens_map"
    r"|added_tokens|vocab)\.json|(\d+_\w+/)?(vocab\.txt|merges\.txt|[\w.-]+\.model)"
    r"|(modules|config_sentence_transformers|bertine)\.json"
)
#: Files with weights: their names without a number, in order of preference.
_WEIGHTS = (("model", ".safetensors"), ("pytorch_model", ".bin"))
_OTHER_WEIGHTS = (".h5", ".msgpack", ".onnx", ".gguf", ".pt", ".ckpt", ".bin", ".safetensors")


def _description(files: Sequence[str]) -> list[str]:
    return [file for file in files if _DESCRIPTION.fullmatch(file)]


def _weights(files: Sequence[str]) -> list[str]:
    """Choose one set of weights, with the index of its parts; none if there is none."""
    # An older sentence-transformers, and tables of vectors, keep them in the first module's folder.
    places = sorted({match[0] for file in files if (match := re.match(r"(0_\w+/)?", file))})
    for place in places:
        for stem, suffix in _WEIGHTS:
            whole = f"{place}{stem}{suffix}"
            if whole in files:
                return [whole]
            if (index := f"{whole}.index.json") in files:
                shard = re.compile(re.escape(f"{place}{stem}-") + r"\d+-of-\d+" + suffix)
                return [index, *filter(shard.fullmatch, files)]
    return []


def _model(name: PublishedName, files: Sequence[str]) -> list[str]:
    """Choose the files of a model: its description and its weights."""
    if not _description(files):
        raise BertineError(f"{name}: has no config.json, so it is no model that Bertine can open")
    if weights := _weights(files):
        return [*_description(files), *weights]
    others = [file for file in files if file.endswith(_OTHER_WEIGHTS)]
    unread = f"; it has {', '.join(others[:5])}, which Bertine does not read" if others else ""
    raise BertineError(f"{name}: has no weights as safetensors or PyTorch's .bin{unread}")


def fetch_model(name: PublishedName, *, weights: bool = True) -> Path:
    """Fetch a published model: its configuration, its tokenizer, the settings of its modules, and
    then its weights, safetensors if there are any; never code.

    Args:
        name: of the model.
        weights: whether the weights are needed, too.

    Returns:
        Its folder in the cache.

    Raises:
        BertineError: as :func:`fetch`; the repository has no weights, or those of an architecture
            that Bertine does not have (which are not fetched).
    """
    if name.part:
        raise BertineError(f"{name}: the name of a model is {name.hub}:ORGANIZATION/NAME")
    name = _in_full(name)
    if not weights:
        return fetch(name, _description)
    # The weights come last: a folder that has them has all of the rest.
    folder = fetch(name, lambda files: _model(name, files) and _description(files))
    if (folder / "config.json").is_file():
        kind = read_json_object(folder / "config.json").get("model_type", "bert")
        known = {*FAMILIES, *registered("MODELS")}
        if str(kind).partition("-for-bertine")[0] not in known:
            raise BertineError(
                f"{name}: is of another architecture ({one_line(kind)[:80]}), and its weights were "
                f"not fetched; Bertine has {', '.join(FAMILIES)}"
            )
    at = replace(name, revision=folder.name) if name.hub == "hf" else name
    return fetch(at, lambda files: _model(name, files))


def cached_model(name: PublishedName) -> Path | None:
    """Return the folder of a model that the cache of the Hugging Face hub holds wholly, else None.
    The hub is not asked."""
    name = _in_full(name)
    if name.hub != "hf" or not _cache_of(name.repository).is_dir():
        return None
    folder, files = _held(name, "model")
    if folder is None:
        return None
    try:
        wanted = _model(name, files or _files_in(folder))
    except BertineError:
        return None
    return folder if all((folder / file).is_file() for file in wanted) else None


def _cache_of(repository: str) -> Path:
    """Return the folder of a model in the cache of the Hugging Face hub, whether it is there or
    not."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE, f"models--{repository.replace('/', '--')}")


# Names without an organization, and names without a prefix.

#: Beginning of a model's name → its organization on the Hugging Face hub.
_ORGANIZATIONS = {
    "bert-": "google-bert",
    "roberta-": "FacebookAI",
    "xlm-roberta-": "FacebookAI",
    "camembert-": "almanach",
    "distilbert-": "distilbert",
    "distilroberta-": "distilbert",
    "albert-": "albert",
    "electra-": "google",
    "mobilebert-": "google",
    "ModernBERT-": "answerdotai",
    "deberta-v3-": "microsoft",
    "openai-gpt": "openai-community",
    "xlnet-": "xlnet",
    "bart-": "facebook",
    "all-": "sentence-transformers",
    "paraphrase-": "sentence-transformers",
    "multi-qa-": "sentence-transformers",
}
#: Presets that are also the names of published models.
_BOTH = re.compile(
    r"(xlm-)?roberta-|camembert-|deberta-v3-|mobilebert-uncased|openai-gpt|xlnet-(base|large)|bart-"
)


def _in_full(name: PublishedName) -> PublishedName:
    """Add the organization to a name without one, unless the cache holds it without, as other
    programs ask for it; the hub knows old ones under both names."""
    repository = name.repository
    known = [who for start, who in _ORGANIZATIONS.items() if repository.startswith(start)]
    if name.hub != "hf" or not known or "/" in repository or _cache_of(repository).is_dir():
        return name
    return replace(name, repository=f"{known[0]}/{repository}")


def name_without_prefix(text: str) -> PublishedName | None:
    """Return what a text names on the Hugging Face hub if a prefix is put before it; None if it
    does not look like the name of a published model. An address of its page is one, too."""
    text = re.sub(r"(?i)^(?:https?:/+(www\.)?(huggingface\.co|hf\.co)/|hf:)", "", text, count=1)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", text):
        return None
    if (text in PRESETS and not _BOTH.match(text)) or ("/" in text and Path(text).parent.exists()):
        return None
    name = _in_full(PublishedName("hf", text))
    return name if "/" in name.repository or _cache_of(text).is_dir() else None


def how_to_get(text: str) -> str | None:
    """Say in one line how to get a model that is named in place of a folder; None if `text` does
    not look like the name of a published model."""
    if text in PRESETS and not _BOTH.match(text):
        return (
            f"{text}: is a size to pre-train ('bertine pretrain'), not a folder with weights; "
            "give the folder of a trained model"
        )
    if (name := name_without_prefix(text)) is None:
        return None
    how = f"give {name}"
    if text in sys.argv and option("model").startswith("--"):
        words = [str(name) if word == text else word for word in sys.argv[1:]]
        how = f"run: bertine {shlex.join(words)}"
    return f"{text}: there is no such folder; to fetch the published model, {how}"


# Records.


def published_name(folder: Path) -> PublishedName | None:
    """Return the name and revision of a folder in the cache of a hub; None: it is another one."""
    match = _CACHED.fullmatch(folder.absolute().as_posix())
    if match is None:
        return None
    hub = "hf" if match[1] == "--" else "modelscope"
    return PublishedName(hub, match[2].replace("--", "/", 1), match[3])


def name_in_cache(file: object) -> str | None:
    """Return a short name for a file of a data set in the cache of the Hugging Face hub; None: it
    is elsewhere."""
    match = re.fullmatch(r".*/datasets--([^/]+)/snapshots/[^/]+/(.+)", str(file))
    return match and f"hf:{match[1].replace('--', '/', 1)}/{match[2]}"


def hashes_of(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of the files of a published model, by their paths in its folder."""
    names = _files_in(folder)
    files = sorted([*_description(names), *_weights(names)])
    return {file: sha256_file(folder / file) for file in files}
