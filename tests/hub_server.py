"""A hub of models and data sets on loopback, for the real client (``huggingface_hub``).

::

    def test_it(hub: Hub) -> None:  # the fixture of conftest.py: a hub, and an empty cache
        commit = hub.add("org/name", folder)  # or {path: bytes}; revision="main"
        hub.add("org/data", files, kind="dataset", revision="refs/convert/parquet")
        hub.faults.append(Fault("safetensors", cut=1000, times=1))
        ...  # this process and those that it starts ask this hub
        assert hub.asked("/resolve/") == 2

Without the fixture: ``with Hub() as hub``, and ``hub.environment(home)`` for a new process.

It answers what the client asks: information on a repository, its files at a revision (the tree),
and ``resolve`` with HEAD, ETag, the commit, Range. As on the real hub, small files are redirected
once, and large ones (by their suffix) to an absolute address, with their SHA-256 as ETag. A name
that was renamed is redirected; an unknown one is answered with 401, or 404 to somebody with a
token. ``modelscope_hub`` finds the same models (``MODELSCOPE_ENDPOINT``). Every request is kept in
``hub.requests``.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

#: Suffixes of files that the hub stores elsewhere.
_LARGE = (".safetensors", ".bin", ".parquet", ".h5", ".onnx", ".msgpack", ".model")
_API = re.compile(r"/api/(model|dataset)s/(.+)")
_RESOLVE = re.compile(r"/(datasets/)?([^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.+)")
_CHUNK = 16384


@dataclass
class Fault:
    """What goes wrong in answers to requests whose path `path` (a regular expression) is found in.

    Attributes:
        status: the answer's status, in place of the right answer; with `code` and `message` as
            the hub's X-Error-Code and X-Error-Message.
        cut: after so many bytes of the file the connection is closed.
        hold: at this byte of the file nothing more comes, for a minute, until who asked is gone.
        times: after so many requests it is over.
        method: only of these requests.
    """

    path: str
    status: int = 0
    code: str = ""
    message: str = ""
    cut: int | None = None
    hold: int | None = None
    times: int | None = None
    method: str | None = None


@dataclass
class Request:
    """One request: `path` without what follows ``?``, and the headers by their names."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass
class _Repository:
    gated: bool = False
    card: dict[str, Any] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)


class Hub:
    """The server, in a thread of this process while the context is open."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        #: Downloads that were held so far.
        self.held = 0
        self._repositories: dict[tuple[str, str], _Repository] = {}
        self._renamed: dict[str, str] = {}
        hub = self

        class Handler(_Handler):
            server_of = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def environment(self, home: Path) -> dict[str, str]:
        """Return the variables with which the client of a new process asks this hub alone."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        }

    def add(
        self,
        name: str,
        files: Path | Mapping[str, bytes],
        *,
        kind: str = "model",
        revision: str = "main",
        gated: bool = False,
        card: dict[str, Any] | None = None,
    ) -> str:
        """Put all files of a folder, or bytes by path, at a revision of a repository, in place of
        what is there; `card` is what the hub knows from its README. Return the commit."""
        if isinstance(files, Path):
            paths = [path for path in sorted(files.rglob("*")) if path.is_file()]
            files = {path.relative_to(files).as_posix(): path.read_bytes() for path in paths}
        names = "".join(f"{path} {hash_of(path, files[path])}\n" for path in sorted(files))
        commit = hashlib.sha1(f"{name} {names}".encode()).hexdigest()
        repository = self._repositories.setdefault((kind, name), _Repository())
        repository.refs[revision] = commit
        repository.commits[commit] = dict(files)
        repository.gated = gated
        repository.card = card or repository.card
        return commit

    def rename(self, old: str, new: str) -> None:
        """Redirect requests for `old`, a name in front of the organizations too, to `new`."""
        self._renamed[old] = new

    def asked(self, path: str, method: str | None = None) -> int:
        """Count the requests whose path the regular expression is found in."""
        return sum(
            re.search(path, request.path) is not None and method in (None, request.method)
            for request in self.requests
        )


def hash_of(path: str, content: bytes) -> str:
    """Return the ETag of a file: SHA-256 of a large one, as Git hashes it of a small one."""
    if path.endswith(_LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server_of, urlsplit(self.path).path
        hub.requests.append(Request(self.command, unquote(path), dict(self.headers.items())))
        fault = self._fault(unquote(path))
        if fault is not None and fault.status:
            return self._refuse(fault.status, fault.code, fault.message)
        if match := re.fullmatch(r"/elsewhere/(model|dataset)/(.+)/([0-9a-f]{40})/(.+)", path):
            kind, name, commit, inside = match.groups()
            inside = unquote(inside)
            content = hub._repositories[kind, unquote(name)].commits[commit][inside]
            headers = {"ETag": f'"{hash_of(inside, content)}"', "X-Repo-Commit": commit}
            return self._send_file(content, headers, fault)
        if match := re.fullmatch(r"/api/v1/models/([^/]+/[^/]+)/repo(/files)?", path):
            return self._modelscope(match[1], bool(match[2]), fault)
        if match := _API.fullmatch(path):
            return self._describe(match[1], match[2])
        if match := _RESOLVE.fullmatch(path):
            kind = "dataset" if match[1] else "model"
            return self._resolve(kind, *(unquote(part) for part in match.groups()[1:]))
        self._refuse(404, "", "Not Found")

    def _fault(self, path: str) -> Fault | None:
        for fault in self.server_of.faults:
            if fault.times != 0 and re.search(fault.path, path):
                if fault.method not in (None, self.command):
                    continue
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None

    def _describe(self, kind: str, rest: str) -> None:
        """Answer on a repository, a revision of it, its branches or its files."""
        match = re.fullmatch(r"(.+?)(?:/(revision|tree)/([^/]+)(/.+)?|/(refs))?", rest)
        assert match is not None
        name = unquote(match[1])
        if (new := self.server_of._renamed.get(name)) is not None:
            query = urlsplit(self.path).query
            rest = f"{quote(new)}{rest[len(match[1]) :]}"
            return self._redirect(307, f"/api/{kind}s/{rest}" + (f"?{query}" if query else ""))
        repository = self._repository(kind, name)
        if repository is None:
            return
        if match[5]:
            refs = [
                {"name": ref.split("/")[-1], "ref": ref, "targetCommit": commit}
                for ref, commit in repository.refs.items()
            ]
            converts = [ref for ref in refs if "convert" in ref["ref"]]
            branches = [ref for ref in refs if "convert" not in ref["ref"]]
            return self._json({"branches": branches, "converts": converts, "tags": []})
        commit = self._commit(repository, unquote(match[3] or "main"))
        if commit is None:
            return
        files = repository.commits[commit]
        if match[2] == "tree":
            folder = unquote(match[4] or "").strip("/")
            return self._json(
                [
                    _tree_entry(path, content)
                    for path, content in files.items()
                    if not folder or path.startswith(f"{folder}/")
                ]
            )
        about = {
            "_id": commit[:24],
            "id": name,
            "modelId": name,
            "sha": commit,
            "private": False,
            "gated": "manual" if repository.gated else False,
            "disabled": False,
            "downloads": 1,
            "likes": 0,
            "tags": [f"license:{repository.card['license']}"] if repository.card else [],
            "cardData": repository.card,
            "siblings": [{"rfilename": path} for path in files],
        }
        self._json(about)

    def _resolve(self, kind: str, name: str, revision: str, path: str) -> None:
        """Answer on a file: where it is, and its hash."""
        if (new := self.server_of._renamed.get(name)) is not None:
            start = "/datasets" if kind == "dataset" else ""
            where = f"{start}/{quote(new)}/resolve/{quote(revision, safe='')}/{quote(path)}"
            return self._redirect(307, where)
        repository = self._repository(kind, name)
        if repository is None:
            return
        if repository.gated and "Authorization" not in self.headers:
            message = f"Access to {kind} {name} is restricted. Please log in."
            return self._refuse(401, "GatedRepo", message)
        if repository.gated and self.headers["Authorization"] != "Bearer hf_member":
            message = f"Access to {kind} {name} is restricted and you are not in the list."
            return self._refuse(403, "GatedRepo", message)
        commit = self._commit(repository, revision)
        if commit is None:
            return
        content = repository.commits[commit].get(path)
        if content is None:
            return self._refuse(404, "EntryNotFound", "Entry not found", commit)
        where = f"/elsewhere/{kind}/{quote(name)}/{commit}/{quote(path)}"
        headers = {"X-Repo-Commit": commit}
        if not path.endswith(_LARGE):
            return self._redirect(307, where, headers)
        headers["X-Linked-ETag"] = f'"{hash_of(path, content)}"'
        headers["X-Linked-Size"] = str(len(content))
        self._redirect(302, self.server_of.url + where, headers)

    def _modelscope(self, name: str, listing: bool, fault: Fault | None) -> None:
        asked = {key: value[0] for key, value in parse_qs(urlsplit(self.path).query).items()}
        repository = self.server_of._repositories.get(("model", name))
        commit = repository and repository.refs.get(asked["Revision"].replace("master", "main"))
        if repository is None or not commit:
            return self._refuse(404, "", "record not found")
        files = repository.commits[commit]
        if not listing:
            return self._send_file(files[asked["FilePath"]], {}, fault)
        entries = [
            {
                "Path": path,
                "Size": len(content),
                "Type": "blob",
                "Sha256": hashlib.sha256(content).hexdigest(),
            }
            for path, content in files.items()
        ]
        self._json({"Code": 200, "Success": True, "Data": {"Files": entries}})

    def _repository(self, kind: str, name: str) -> _Repository | None:
        found = self.server_of._repositories.get((kind, name))
        if found is None and "Authorization" in self.headers:
            self._refuse(404, "RepoNotFound", "Repository not found")
        elif found is None:
            self._refuse(401, "", "Invalid username or password.")
        return found

    def _commit(self, repository: _Repository, revision: str) -> str | None:
        commit = repository.refs.get(revision, revision)
        if commit in repository.commits:
            return commit
        self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return None

    def _send_file(self, content: bytes, headers: dict[str, str], fault: Fault | None) -> None:
        part = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(part[1]) if part else 0
        self.send_response(206 if part else 200)
        if part:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        headers |= {"Accept-Ranges": "bytes", "Content-Length": str(len(content) - begin)}
        self._end(headers)
        if self.command == "HEAD":
            return
        end = len(content)
        if fault is not None and fault.cut is not None:
            end = min(end, begin + fault.cut)
        elif fault is not None and fault.hold is not None:
            end = max(begin, fault.hold)
        try:
            for start in range(begin, end, _CHUNK):
                self.wfile.write(content[start : min(start + _CHUNK, end)])
            if fault is not None and fault.hold is not None:
                self.wfile.flush()
                self.server_of.held += 1
                self.connection.settimeout(60)
                self.connection.recv(1)  # nothing comes but the end
        except OSError:  # who asked is gone
            self.close_connection = True
        if end < len(content):
            self.close_connection = True

    def _json(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self._end({"Content-Type": "application/json", "Content-Length": str(len(content))})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _redirect(self, status: int, where: str, headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        self._end({**headers, "Location": where, "Content-Length": "0"})

    def _refuse(self, status: int, code: str, message: str, commit: str = "") -> None:
        content = json.dumps({"error": message}).encode()
        self.send_response(status)
        headers = {"X-Error-Code": code, "X-Error-Message": message, "X-Repo-Commit": commit}
        headers["Content-Length"] = str(len(content))
        self._end({name: value for name, value in headers.items() if value})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _end(self, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def _tree_entry(path: str, content: bytes) -> dict[str, Any]:
    small = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry = {"type": "file", "path": path, "size": len(content), "oid": small}
    if path.endswith(_LARGE):
        entry["lfs"] = {"oid": hash_of(path, content), "size": len(content), "pointerSize": 134}
    return entry
