"""Bearer tokens: who is let in, what stays open, what is recorded, and token files that cannot be used."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.api.auth import TokenFileError, Tokens
from tests.contract.world import GRAPH, World, bounds, open_world

TOKEN = "correct-horse-battery-staple"
OTHER = "another-token-of-length"


def token_file(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
async def guarded(sqlite_url: str, tmp_path: Path) -> AsyncIterator[World]:
    digest = hashlib.sha256(OTHER.encode()).hexdigest()
    tokens = Tokens.read(token_file(tmp_path, f"# people\nalice:{TOKEN}\n\nbob:sha256:{digest}\n"))
    async with open_world(sqlite_url, tmp_path, tokens=tokens) as opened:
        yield opened


async def test_without_a_valid_token_nothing_is_told(guarded: World) -> None:
    for headers in (
        {}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": TOKEN},
        {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN} x"},
    ):  # fmt: skip
        for method, path in (
            ("GET", "/jobs"), ("GET", "/nope"), ("POST", "/jobs"), ("OPTIONS", "/jobs"), ("PUT", "/jobs"),
            ("HEAD", "/jobs"), ("GET", "/v1/config"), ("PATCH", "/jobs/" + "0" * 32),
        ):  # fmt: skip
            answer = await guarded.http.request(method, path, headers=headers)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    doubled = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {OTHER}")]
    assert (await guarded.http.get("/jobs", headers=doubled)).status_code == 401


async def test_health_and_documentation_need_no_token(guarded: World) -> None:
    for path in ("/health/live", "/health/ready", "/v1/health/ready", "/openapi.json", "/docs"):
        assert (await guarded.http.get(path)).status_code == 200, path
    document = (await guarded.http.get("/openapi.json")).json()
    assert document["security"] == [{"token": []}]
    assert document["paths"]["/health/live"]["get"]["security"] == []


async def test_the_history_names_the_caller_and_drivers_have_their_own_credentials(guarded: World) -> None:
    world = guarded
    world.http.headers["Authorization"] = f"bearer {TOKEN}"
    job_id = await world.running()
    world.http.headers["Authorization"] = f"Bearer {OTHER}"
    await world.put(job_id, bounds(flights=(1, 3), delays=(1, 3), store=(1, 1)))
    await world.completed(job_id, 2)
    history = await world.get(f"/jobs/{job_id}/rescales/history")
    assert [record["requestedBy"] for record in history] == ["bob", "alice"]
    assert (await world.get(f"/jobs/{job_id}"))["submittedBy"] == "alice"
    # A user's token does not speak for a driver.
    assert (await world.http.get(f"/internal/v1/jobs/{job_id}/attempts/1/orders")).status_code in (400, 410)


async def test_with_tokens_any_host_name_may_be_used_but_no_other_origin(guarded: World) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "slotwise.example:443"}
    assert (await guarded.http.get("/jobs", headers=headers)).status_code == 200
    foreign = {**headers, "Origin": "https://evil.example"}
    assert (await guarded.http.post("/jobs", json=GRAPH, headers=foreign)).status_code == 403


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no token"),
        ("# nothing\n", "no token"),
        ("alice\n", "line 1"),
        ("alice:short\n", "line 1"),
        (f"alice:{TOKEN}\n\nbob:{TOKEN}\n", "line 3"),
        (f"al ice:{TOKEN}\n", "line 1"),
        (f"alice:{TOKEN} x\n", "line 1"),
        ("alice:sha256:abc\n", "line 1"),
        ("alice:" + "ü" * 20 + "\n", "line 1"),
    ],
)
def test_bad_token_files_are_refused_without_showing_a_secret(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(TokenFileError) as refusal:
        Tokens.read(token_file(tmp_path, text))
    assert found in str(refusal.value)
    assert TOKEN not in str(refusal.value)


def test_token_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, found in (
        (tmp_path / "missing", "No such file"),
        (tmp_path, "directory"),
        (token_file(tmp_path, f"alice:{TOKEN}\n", 0o644), "chmod 600"),
    ):
        with pytest.raises(TokenFileError, match=found):
            Tokens.read(path)
    (tmp_path / "tokens").write_bytes(b"\xff\xfe")
    (tmp_path / "tokens").chmod(0o600)
    with pytest.raises(TokenFileError, match="UTF-8"):
        Tokens.read(tmp_path / "tokens")
