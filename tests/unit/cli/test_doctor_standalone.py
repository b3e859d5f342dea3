"""`doctor` looks at a Spark standalone cluster, and says in words what is wrong."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.cli.cluster_checks import is_here, standalone_checks
from app.cli.doctor import Check, run_checks
from app.settings import Settings, load_settings
from tests.unit.cluster.test_roster import page, worker

Run = Callable[..., Any]


class Page(ThreadingHTTPServer):
    """The web page of a master."""

    body: bytes = b""
    status = 200


class Handler(BaseHTTPRequestHandler):
    server: Page

    def do_GET(self) -> None:
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def master() -> Iterator[Page]:
    with Page(("127.0.0.1", 0), Handler) as server:
        server.body = json.dumps(page(worker(1), worker(2))).encode()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def settings(master: Page, tmp_path: Path) -> Settings:
    return load_settings(
        data_dir=tmp_path,
        port=0,
        cluster_kind="spark-standalone",
        # Somebody answers there, which is all that is asked.
        cluster_master=f"spark://127.0.0.1:{master.server_port}",
        cluster_webui=f"http://127.0.0.1:{master.server_port}",
    )


def checks(settings: Settings) -> dict[str, Check]:
    return {check.name: check for check in standalone_checks(settings)}


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_cluster_that_offers_slots(settings: Settings) -> None:
    found = list(run_checks(settings))[-4:]
    assert [(check.name, check.ok, check.advice) for check in found] == [
        ("Spark master", True, ""),
        ("Spark master's page", True, ""),
        ("Spark workers", True, ""),
        ("drivers", True, ""),
    ]
    assert found[2].found == "2 with 4 cores, 4 slots"


def test_the_command_line_of_serve_is_understood(slotwise: Run, settings: Settings, tmp_path: Path) -> None:
    asked = ("--cluster-master", str(settings.cluster_master), "--cluster-webui", str(settings.cluster_webui))
    outcome = slotwise("doctor", "--json", "--port", "0", "--data-dir", str(tmp_path), *asked)
    assert {"Spark master", "Spark workers"} <= {check["name"] for check in json.loads(outcome.out)}
    refused = slotwise("doctor", "--cluster-master", "spark://far:7077", "--cluster-webui", "http://far:8080")
    assert (refused.status, refused.err.partition(":")[0]) == (2, "cluster_driver_host")


def test_a_master_that_is_not_there(settings: Settings) -> None:
    port = unused_port()
    away = settings.model_copy(
        update={"cluster_master": f"spark://127.0.0.1:{port}", "cluster_webui": f"http://127.0.0.1:{port}"}
    )
    found = checks(away)
    assert list(found) == ["Spark master", "Spark master's page", "drivers"]
    assert not found["Spark master"].ok and "Connection refused" in found["Spark master"].found
    assert not found["Spark master's page"].ok and "cluster_webui" in found["Spark master's page"].advice


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "is not the page of a Spark master"),
        (404, b"", "answers 404"),
        (200, json.dumps(page(status="STANDBY")).encode(), "the master is STANDBY"),
    ],
)
def test_another_page_than_of_a_master_that_is_alive(
    master: Page, settings: Settings, status: int, body: bytes, words: str
) -> None:
    master.status, master.body = status, body
    check = checks(settings)["Spark master's page"]
    assert not check.ok and words in check.found and "cluster_webui" in check.advice


def test_of_several_masters_one_has_to_be_alive(settings: Settings) -> None:
    port = unused_port()
    several = settings.model_copy(
        update={
            "cluster_master": f"spark://127.0.0.1:{port},{str(settings.cluster_master).partition('//')[2]}",
            "cluster_webui": f"http://127.0.0.1:{port},{settings.cluster_webui}",
        }
    )
    assert all(check.ok for check in checks(several).values())


@pytest.mark.parametrize(
    ("workers", "ok", "words"),
    [
        ([], False, "none"),
        ([worker(1, memory=511)], False, "worker-1 has 511 MB for 0 of its 2 cores"),
        ([worker(1), worker(2, memory=600)], True, "worker-2 has 600 MB for 1 of its 2 cores"),
    ],
)
def test_workers_that_offer_nothing_or_less_than_they_could(
    master: Page, settings: Settings, workers: list[dict[str, Any]], ok: bool, words: str
) -> None:
    master.body = json.dumps(page(*workers)).encode()
    check = checks(settings)["Spark workers"]
    assert (check.ok, words in check.found) == (ok, True)
    assert check.advice


def test_drivers_that_executors_could_not_reach(master: Page, settings: Settings) -> None:
    # Of the block for documentation: nobody has it.
    master.body = json.dumps(page({**worker(1), "host": "192.0.2.7"})).encode()
    check = checks(settings)["drivers"]
    assert not check.ok and "cannot be reached from 192.0.2.7" in check.found
    assert "cluster_driver_host" in check.advice
    elsewhere = settings.model_copy(update={"cluster_driver_host": "192.0.2.8"})
    assert "no address of this host" in checks(elsewhere)["drivers"].found


def test_what_is_here() -> None:
    assert is_here("127.0.0.1") and is_here("localhost")
    assert not is_here("192.0.2.7")


def test_the_page_of_another_master(master: Page, settings: Settings) -> None:
    other = f"spark://localhost:{unused_port()}"
    master.body = json.dumps({**page(worker(1)), "url": other}).encode()
    found = checks(settings)
    check = found["Spark master's page"]
    assert not check.ok and f"it is the page of the master {other}" in check.found
    assert str(settings.cluster_master) in check.found and "cluster_webui" in check.advice
    assert "Spark workers" not in found, "they are those of another master"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_page_of_the_master_under_any_name(master: Page, settings: Settings, host: str) -> None:
    master.body = json.dumps({**page(worker(1)), "url": f"spark://{host}:{master.server_port}"}).encode()
    assert all(check.ok and not check.advice for check in checks(settings).values())


def test_a_page_of_which_it_cannot_be_told(master: Page, settings: Settings) -> None:
    master.body = json.dumps({**page(worker(1)), "url": "spark://3f2a9c.invalid:7077"}).encode()
    check = checks(settings)["Spark master's page"]
    assert check.ok and "spark://3f2a9c.invalid:7077" in check.advice
