"""Bearer tokens: who is let in, what stays open, what is recorded, and token files that cannot be used."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.api.auth import TokenFile, TokenFileError, Tokens
from tests.contract.world import GRAPH, World, bounds, eventually, open_world

TOKEN = "correct-horse-battery-staple"
OTHER = "another-token-of-length"
DOCS = Path(__file__).parents[2] / "docs"


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
            ("GET", "/jobs"), ("GET", "/nope"), ("GET", "/"), ("POST", "/jobs"), ("OPTIONS", "/jobs"), ("PUT", "/jobs"),
            ("HEAD", "/jobs"), ("GET", "/v1/config"), ("PATCH", "/jobs/" + "0" * 32), ("POST", "/health/live"),
            ("GET", "/internal/nope"), ("OPTIONS", f"/internal/v1/jobs/{'0' * 32}/attempts/1/orders"), ("PUT", "/docs"),
        ):  # fmt: skip
            answer = await guarded.http.request(method, path, headers=headers)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")
    doubled = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {OTHER}")]
    assert (await guarded.http.get("/jobs", headers=doubled)).status_code == 401


async def test_health_and_documentation_need_no_token(guarded: World) -> None:
    for path in (
        "/health/live",
        "/health/ready",
        "/v1/health/ready",
        "/health/live/",
        "/openapi.json",
        "/docs",
        "/docs/swagger-ui.css",
        "/v1/docs",
        "/v1/openapi.json",
        "/ui/app.js",
    ):
        assert (await guarded.http.get(path)).status_code == 200, path
    assert (await guarded.http.get("/", headers={"Accept": "text/html"})).status_code == 200
    document = (await guarded.http.get("/openapi.json")).json()
    assert document["security"] == [{"token": []}]
    assert document["paths"]["/health/live"]["get"]["security"] == []


async def test_every_operation_asks_for_a_token(guarded: World) -> None:
    document = (await guarded.http.get("/openapi.json")).json()
    open_to_all = set()
    for path, methods in document["paths"].items():
        url = re.sub(r"\{[a-z]+\}", "0" * 32, path)
        for method, operation in methods.items():
            answers = [
                await guarded.http.request(method, url, headers=headers)
                for headers in ({}, {"Authorization": "Bearer " + "x" * len(TOKEN)})
            ]
            found = {answer.status_code for answer in answers}
            if operation.get("security") == []:
                open_to_all.add(path)
                assert found == {200}, (method, path)
            else:
                assert found == {401}, (method, path)
    assert open_to_all == {"/health/live", "/health/ready"}
    assert len(document["paths"]) > 50


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


async def test_a_token_for_metrics_reads_them_and_nothing_else(sqlite_url: str, tmp_path: Path) -> None:
    digest = hashlib.sha256(OTHER.encode()).hexdigest()
    text = f"alice:{TOKEN}\nprometheus:metrics-only:sha256:{digest}\n"
    async with open_world(sqlite_url, tmp_path, tokens=TokenFile(token_file(tmp_path, text))) as world:

        async def status(path: str, token: str | None, method: str = "GET") -> int:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            return (await world.http.request(method, path, headers=headers)).status_code

        for path in ("/metrics", "/v1/metrics", "/metrics/"):
            assert [await status(path, token) for token in (TOKEN, OTHER, None, "wrong")] == [
                200,
                200,
                401,
                401,
            ]
        for path in ("/jobs", "/jobmanager/metrics", "/events", "/nope", "/config"):
            assert await status(path, OTHER) == 401, path
        assert [await status("/metrics", OTHER, method) for method in ("HEAD", "POST", "OPTIONS")] == [
            200,
            401,
            401,
        ]
        token_file(tmp_path, f"alice:{TOKEN}\nprometheus:sha256:{digest}\n")
        await eventually(lambda: _is(status("/jobs", OTHER), 200), "the token is one of a user now")


async def _is(found: Awaitable[int], wanted: int) -> bool:
    return await found == wanted


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no token"),
        (f"prometheus:metrics-only:{TOKEN}\nalice:{TOKEN}\n", "line 2"),
        ("prometheus:metrics-only:\n", "line 1"),
        ("prometheus:metrics-only:sha256:12\n", "line 1"),
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


@dataclass
class Clock:
    at_s: float = 0.0

    def __call__(self) -> float:
        return self.at_s


def hashed(name: str, token: str) -> str:
    return f"{name}:sha256:{hashlib.sha256(token.encode()).hexdigest()}\n"


async def test_a_changed_token_file_is_in_force_within_a_second_without_a_restart(
    sqlite_url: str, tmp_path: Path
) -> None:
    clock = Clock()
    path = token_file(tmp_path, hashed("alice", TOKEN))
    async with open_world(sqlite_url, tmp_path, tokens=TokenFile(path, now_s=clock)) as world:

        async def may(token: str) -> bool:
            clock.at_s += 1.0
            answer = await world.http.get("/jobs", headers={"Authorization": f"Bearer {token}"})
            return answer.status_code == 200

        async def warnings() -> str:
            clock.at_s += 1.0
            answer = await world.http.get("/health/ready")
            assert answer.status_code == 200
            return " ".join(answer.json()["warnings"])

        assert [await may(TOKEN), await may(OTHER)] == [True, False]
        # Replaced, as editors do it, and written in place.
        new = tmp_path / "new"
        new.write_text(hashed("bob", OTHER))
        new.chmod(0o600)
        new.replace(path)
        assert [await may(TOKEN), await may(OTHER), await warnings()] == [False, True, ""]
        path.write_text(hashed("alice", TOKEN) + hashed("bob", OTHER))
        assert [await may(TOKEN), await may(OTHER)] == [True, True]
        # What cannot be used changes nothing, and is told to those who ask whether all is well.
        for spoil, found in (
            (lambda: path.write_text(f"alice:{TOKEN}\nbob\n"), "line 2"),
            (lambda: path.write_text(""), "no token"),
            (lambda: path.chmod(0o644), "chmod 600"),
            (path.unlink, "No such file"),
        ):
            spoil()
            told = await warnings()
            assert found in told and "previous tokens stay valid" in told and TOKEN not in told
            assert [await may(TOKEN), await may(OTHER)] == [True, True]
            assert found in await warnings(), "it is told until it is mended"
        token_file(tmp_path, hashed("bob", OTHER))
        assert [await may(TOKEN), await may(OTHER), await warnings()] == [False, True, ""]


def test_the_token_file_is_looked_at_once_a_second_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    tokens = TokenFile(token_file(tmp_path, hashed("alice", TOKEN)), now_s=clock)
    looks: list[float] = []
    look = tokens._identity

    def counted() -> tuple[int, ...]:
        looks.append(clock.at_s)
        return look()

    monkeypatch.setattr(tokens, "_identity", counted)
    for _ in range(100):
        clock.at_s += 0.05
        assert tokens.name_of(TOKEN.encode()) == "alice"
    assert len(looks) in (4, 5)


@pytest.mark.parametrize("page", ["install.md", "security.md"])
def test_the_commands_of_the_page_make_a_token_file_of_hashes(tmp_path: Path, page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    (commands,) = [block for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "sha256sum" in block]
    made = commands.partition("slotwise")[0] + 'printf "%s" "$token"'
    token = subprocess.run(
        ["sh", "-ec", made], cwd=tmp_path, capture_output=True, check=True, text=True
    ).stdout.splitlines()[-1]
    assert Tokens.read(tmp_path / "tokens").name_of(token.encode()) == "ops"
    assert len(token) == 64 and token not in (tmp_path / "tokens").read_text()
