"""The files of the dashboard: what is served, under which policy, what is foreign, and what the page calls."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

import app.web
from tests.contract.world import World

FOLDER = Path(app.web.__file__).parent / "dashboard"
VENDORED = ("dagre", "htm", "uplot")
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_browsers_are_given_the_page_and_programs_what_they_were(world: World) -> None:
    for path in ("/", "/v1/"):
        answer = await world.http.get(path, headers=BROWSER)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["vary"] == "Accept"
    for accept in ("*/*", "application/json"):
        assert (await world.http.get("/", headers={"Accept": accept})).status_code == 404


async def test_the_policy_lets_the_page_run_and_ask_nothing_from_elsewhere(world: World) -> None:
    answer = await world.http.get("/", headers=BROWSER)
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert "unsafe" not in str(policy)
    assert not re.search(r"<script>|<style|style=|\son\w+=", answer.text)


async def test_everything_that_the_page_and_its_modules_name_is_served(world: World) -> None:
    names = set(re.findall(r'(?:src|href)="ui/([^"]+)"', (FOLDER / "index.html").read_text(encoding="utf-8")))
    # The page names all modules, so that the browser need not read one to learn of the next.
    for module in FOLDER.glob("*.js"):
        assert set(re.findall(r'from "\./([^"]+)"', module.read_text(encoding="utf-8"))) <= names
    assert {path.name for path in FOLDER.glob("*.js")} <= names
    for name in names:
        plain = await world.http.get(f"/ui/{name}", headers={"Accept-Encoding": "identity"})
        assert plain.status_code == 200, name
        assert plain.headers["x-content-type-options"] == "nosniff"
        small = await world.http.get(f"/ui/{name}", headers={"Accept-Encoding": "gzip"})
        assert (small.headers["content-encoding"], small.content) == ("gzip", plain.content)
        assert small.headers["etag"] != plain.headers["etag"]
        known = {"Accept-Encoding": "gzip", "If-None-Match": small.headers["etag"]}
        again = await world.http.get(f"/ui/{name}", headers=known)
        assert (again.status_code, again.content) == (304, b"")
    for name in ("LICENSE", "index.html", "..%2Findex.html", "nope.js"):
        answer = await world.http.get(f"/ui/{name}")
        assert (answer.status_code, list(answer.json())) == (404, ["errors"])


@pytest.mark.parametrize("package", VENDORED)
def test_what_comes_from_elsewhere_is_what_its_package_has(package: str) -> None:
    folder = FOLDER / "vendor" / package
    version, *listed = (folder / "SHA256SUMS").read_text().splitlines()
    assert re.fullmatch(r"# [@/a-z]+ [0-9.]+ of npm", version)
    expected = {name: digest for digest, name in (line.split("  ") for line in listed)}
    assert "LICENSE" in expected
    assert {path.name for path in folder.iterdir()} == {*expected, "SHA256SUMS"}
    for name, digest in expected.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_the_page_is_small() -> None:
    sizes = {
        path: len(gzip.compress(path.read_bytes()))
        for path in FOLDER.rglob("*")
        if path.suffix in (".js", ".css", ".html", ".svg")
    }
    foreign = sum(size for path, size in sizes.items() if "vendor" in path.parts)
    assert foreign < 48_000
    assert sum(sizes.values()) - foreign < 40_000


async def test_every_call_of_the_page_is_an_operation_of_the_api(world: World) -> None:
    """By what its modules say: a path that is renamed is found here, before a person finds it."""
    paths = (await world.http.get("/openapi.json")).json()["paths"]
    known = {re.sub(r"\{\w+\}", "*", path) for path in paths}
    called: set[str] = set()
    for module in FOLDER.glob("*.js"):
        text = module.read_text(encoding="utf-8")
        for pattern, prefix in (
            (r'(?<![.\w])(?:get|useEvents)\(\s*[`"]([^`"]+)', "/"),
            (r'call\(\s*"[A-Z]+",\s*(?:\w+ \? "[^"]+" : )?[`"]([^`"$][^`"]*)', "/"),
            (r'\b(?:job|path)\([\w.]+, [`"]([^`"]+)', "/jobs/*"),
            (r'\brest(?:: |=\$\{)[`"](/[^`"]+)', "/jobs/*"),
        ):
            called |= {
                prefix + re.sub(r"\$\{.*\}", "*", path.split("?")[0]) for path in re.findall(pattern, text)
            }
    assert {"/jobs/overview", "/events", "/jobs/*/events", "/jobs/*/attempts/*/logs", "/jobs"} <= called
    assert {"/jobs/*/resource-requirements", "/jobs/*/scaling-policy", "/jobs/*/rescales/*"} <= called
    assert called - known == set()
