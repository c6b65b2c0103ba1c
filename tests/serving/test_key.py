"""Only who has the key is answered, where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import post, running, status


@pytest.mark.takes(4)
def test_the_key_is_wanted_but_for_the_page_and_the_state(models: dict[str, Path]) -> None:
    with running({"text": models["text"]}, api_key="sesame-7") as client:
        for headers in ({}, {"Authorization": "Bearer sesame"}, {"Authorization": "sesame-7"}):
            answer = client("/predict", {"texts": ["a"]}, **headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer KEY" in answer.message
        right = {"Authorization": "Bearer sesame-7"}
        assert client("/predict", {"texts": ["a"]}, **right).status == 200
        assert client("/", {"inputs": "a"}).status == 401  # what is open at / is the page
        assert client("/metrics").status == 401
        assert client("/v1/models").status == 401
        assert client("/v1/models", **right).status == 200
        for path in ("/", "/docs", "/health", "/ready"):
            assert client(path).status == 200
        described = client("/openapi.json").json
        assert described["components"]["securitySchemes"] == {
            "key": {"type": "http", "scheme": "bearer"}
        }
        for path, operations in described["paths"].items():
            for operation in operations.values():
                assert ("security" in operation) == (path not in ("/health", "/ready")), path
        # Nothing is read of a body that nobody is let in with.
        assert status(client.raw(post("/predict", b"", length=10**6))) == 401
