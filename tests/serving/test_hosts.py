"""Pages of other sites cannot reach a server by a name of theirs that stands for this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bertine.core.errors import BertineError
from bertine.serving.requests import ApiError, Hosts

from .conftest import Client, running


def status(hosts: Hosts, *given: str, version: str = "1.1") -> int:
    """Of a request with these Host headers; 200: it may be answered."""
    headers = [(b"accept", b"*/*"), *((b"host", name.encode("latin-1")) for name in given)]
    try:
        hosts.check(headers, version)
    except ApiError as error:
        return error.status_code
    return 200


@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "LocalHost:8000",
        "localhost.",
        "pets.localhost:80",
        "127.0.0.1",
        "127.0.0.1:8000",
        "127.8.9.1:8000",
        "192.168.1.7:8000",
        "[::1]",
        "[::1]:8000",
        "[2001:db8::7]:8000",
    ],
)
def test_names_of_loopback_and_addresses_are_taken(name: str) -> None:
    assert status(Hosts(), name) == 200


@pytest.mark.parametrize(
    "name",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "notlocalhost",
        "evil.example:80:80",
        "localhost:80@evil.example",
        "localhost/evil",
        "evil.example#localhost",
        "",
        "::1",
        "[evil.example]",
        "b\xfccher.example",
        "x" * 30_000,
    ],
)
def test_other_names_are_not(name: str) -> None:
    assert status(Hosts(), name) == 421


def test_names_that_are_given_are_taken() -> None:
    hosts = Hosts("box.lan", ["Pets.Example", "*.cats.example"])
    for name in ("box.lan:8000", "pets.example", "a.cats.example", "a.b.cats.example:1"):
        assert status(hosts, name) == 200
    for name in ("lan", "www.pets.example", "cats.example", "evilcats.example"):
        assert status(hosts, name) == 421
    assert status(Hosts(allowed=["*"]), "any.example") == 200
    assert status(Hosts(allowed=["*"]), "no name") == 421


def test_a_server_for_others_may_be_asked_by_the_name_of_its_machine() -> None:
    name = socket.gethostname()
    if name.partition(".")[0] != "localhost":
        assert status(Hosts("127.0.0.1"), name) == 421
    assert status(Hosts("0.0.0.0"), name) == 200
    assert status(Hosts("::"), f"{name}:8000") == 200
    assert status(Hosts("0.0.0.0"), "evil.example") == 421


def test_there_is_one_host_header() -> None:
    assert status(Hosts()) == 400
    assert status(Hosts(), version="1.0") == 200
    for version in ("1.0", "1.1"):
        assert status(Hosts(), "localhost", "evil.example", version=version) == 400


@pytest.mark.parametrize(
    "name", ["", "http://a.example", "a.example:80", "a.*", "*.", "a b", "b\xfccher.example", "*x"]
)
def test_what_is_no_name_cannot_be_allowed(name: str) -> None:
    with pytest.raises(BertineError, match="allowed_hosts has"):
        Hosts(allowed=["a.example", name])


def test_nothing_is_answered_to_another_name(models: dict[str, Path]) -> None:
    with running({"text": models["text"]}, hosts=Hosts(allowed=["pets.example"])) as client:
        for path in ("/", "/docs", "/openapi.json", "/health", "/metrics", "/v1/models", "/none"):
            assert client(path, Host=f"evil.example:{client.port}").status == 421
        answer = client("/predict", {"texts": ["the cat"]}, Host="evil.example")
        assert answer.status == 421
        assert "'evil.example'" in answer.message
        assert "allowed_hosts" in answer.message
        assert b'bertine_requests_total{code="421",path="/predict"} 1.0' in client("/metrics").body
        for name in ("pets.example", "localhost", f"127.0.0.1:{client.port}"):
            assert client("/predict", {"texts": ["the cat"]}, Host=name).status == 200


def test_a_request_without_the_header_is_told_so(ask: Client) -> None:
    none = ask.raw(b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert none.startswith(b"HTTP/1.1 400")
    assert b"send one Host header" in none
    old = ask.raw(b"GET /health HTTP/1.0\r\n\r\n")
    assert b"200 OK" in old.split(b"\r\n", 1)[0]
