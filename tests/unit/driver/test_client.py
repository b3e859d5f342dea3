"""The driver's end of its protocol, against a server on this machine that can be away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.driver import client as module
from app.driver.client import ControlPlaneClient, OwnerAddress
from app.model.measured import TaskWork, VertexBatch
from app.model.protocol import DriverSpec, Orders, Registration
from tests.integration.driver.harness import ControlPlaneDouble, wait_for

REGISTRATION = Registration(pid=1, pid_started_at=1.0, host="here", spark_version="4", spark_app_id="app")


class Rig:
    """A client, its server, and what the client has said of orders and fences."""

    def __init__(self, directory: Path) -> None:
        self.server = ControlPlaneDouble(directory / "address")
        self.server.home = "ours"
        self.orders: list[Orders] = []
        self.fenced: list[bool] = []
        spec = DriverSpec(
            job_id="0" * 32,
            job_name="job",
            attempt=1,
            epoch=3,
            secret="the secret",
            address_file=str(directory / "address"),
            graph={},
            plan_version=1,
            parallelism={"a": 1},
            master="local[1]",
            slots=1,
            held_slots=1,
            checkpoint_dir="",
            work_dir="",
            artifacts_dir="",
            home="ours",
        )
        self.server.order(plan_version=1, parallelism={"a": 1}, stop="none", epoch=3, slots=1)
        self.client = ControlPlaneClient(
            spec, REGISTRATION, on_orders=self.orders.append, on_fenced=lambda: self.fenced.append(True)
        )

    def numbers(self) -> list[int]:
        return [report["seq"] for report in self.server.reports]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.client.close()
    if made.server._server is not None:
        made.server.go_away()


def batch(rig: Rig, number: int) -> None:
    rig.client.report(type="batch", batch_id=number)


def test_reports_are_numbered_and_acknowledged(rig: Rig) -> None:
    rig.client.start()
    for number in range(3):
        batch(rig, number)
    assert rig.client.flush(60)
    assert rig.numbers() == [1, 2, 3]
    assert rig.server.registrations[0]["spark_app_id"] == "app"
    assert {call["authorization"] for call in rig.server.calls} == {"Bearer the secret"}


def test_a_driver_registers_again_and_what_it_reports_then_comes_behind(rig: Rig) -> None:
    rig.client.start()
    batch(rig, 0)
    assert rig.client.flush(60)
    rig.client.register(replace(REGISTRATION, ui_url="http://127.0.0.1:4040"))
    batch(rig, 1)
    assert rig.client.flush(60) and rig.numbers() == [1, 2]
    assert [each["ui_url"] for each in rig.server.registrations] == ["", "http://127.0.0.1:4040"]


def test_what_hangs_before_the_orders_makes_the_driver_silent_and_reports_go_on(rig: Rig) -> None:
    goes_on = threading.Event()
    rig.client._before_orders = goes_on.wait
    rig.client.start()
    batch(rig, 0)
    assert rig.client.flush(60)
    time.sleep(0.2)
    assert not asked_for_orders(rig)
    goes_on.set()
    wait_for("it asks for its orders", lambda: asked_for_orders(rig))


def asked_for_orders(rig: Rig) -> list[dict[str, str]]:
    return [call for call in rig.server.calls if "/orders" in call["path"]]


def test_an_acknowledgement_of_an_owner_before_counts_for_nothing(rig: Rig) -> None:
    rig.server.epoch = 2
    rig.client.start()
    batch(rig, 0)
    wait_for("it is sent again", lambda: len(rig.server.calls) > 5)
    assert not rig.client.flush(0.1)
    rig.server.epoch = 4
    assert rig.client.flush(60) and rig.client.epoch == 4
    rig.server.epoch = 3
    batch(rig, 1)
    assert not rig.client.flush(0.1), "of the newest owner that was heard"


def test_a_server_that_is_stopped_is_not_waited_for_when_the_job_has_another_owner(
    rig: Rig, tmp_path: Path
) -> None:
    """It holds the connection open and answers nothing; the timeout would be 20 s."""
    address = (tmp_path / "address").read_text()
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        (tmp_path / "address").write_text(f"http://127.0.0.1:{stopped.getsockname()[1]}\n1\n")
        rig.client.start()
        connection, _ = stopped.accept()
        with connection:
            assert connection.recv(1)
            (tmp_path / "address").write_text(f"{address.strip()}\n2\n")
            batch(rig, 0)
            assert rig.client.flush(60)
    assert rig.numbers() == [1]


def test_an_owner_that_changes_while_it_is_called_is_not_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as old:
        file = tmp_path / "address"
        file.write_text(f"http://127.0.0.1:{old.getsockname()[1]}\n1\n")
        address: Any = OwnerAddress(str(file), threading.Event())
        address._note = lambda _: file.write_text("http://127.0.0.1:1\n2\n")
        with pytest.raises(ConnectionAbortedError, match="another owner"):
            address.call("GET", "/", None, {}, 20.0)


def test_reports_wait_for_a_server_that_is_away_and_find_it_elsewhere(rig: Rig) -> None:
    rig.server.go_away()
    rig.client.start()
    for number in range(2):
        batch(rig, number)
    assert not rig.client.flush(0.1)
    rig.server.come_back()
    assert rig.client.flush(60)
    assert rig.numbers() == [1, 2]
    assert len(rig.server.registrations) == 1


def test_orders_arrive_once_each(rig: Rig) -> None:
    rig.client.start()
    rig.server.order(plan_version=2, parallelism={"a": 2})
    wait_for("the plan", lambda: rig.orders)
    rig.server.order(stop="drain")
    wait_for("the stop", lambda: len(rig.orders) > 1)
    assert [(each.plan_version, each.stop) for each in rig.orders] == [(2, "none"), (2, "drain")]


def test_the_epoch_of_a_new_owner_is_taken_up_and_an_older_one_is_ignored(rig: Rig) -> None:
    rig.client.start()
    rig.server.order(plan_version=2, parallelism={"a": 2}, epoch=5)
    wait_for("the plan", lambda: rig.orders)
    assert rig.client.epoch == 5
    rig.client._take_orders({"plan_version": 9, "parallelism": {"a": 9}, "stop": "kill", "epoch": 4})
    assert rig.client.epoch == 5
    assert len(rig.orders) == 1


def test_a_fenced_client_says_so_once_and_gives_up(rig: Rig) -> None:
    rig.server.fenced = True
    rig.client.start()
    batch(rig, 0)
    wait_for("the fence", lambda: rig.fenced)
    assert not rig.client.flush(0.05)
    for thread in rig.client._threads:
        thread.join(10)
        assert not thread.is_alive()
    assert rig.fenced == [True]
    assert not rig.server.reports


@pytest.mark.parametrize("home", ["theirs", "", None, 5])
def test_a_server_of_another_data_directory_at_its_address_does_not_fence_it(rig: Rig, home: Any) -> None:
    """It has the port now, or it is no server of ours at all: the driver looks again until its own is back."""
    rig.server.fenced, rig.server.home = True, home
    rig.client.start()
    batch(rig, 0)
    wait_for("it asks again", lambda: len(rig.server.calls) > 3)
    assert not rig.fenced and not rig.client.flush(0.05)
    rig.server.go_away()
    rig.server.fenced, rig.server.home = False, "ours"
    rig.server.come_back()
    assert rig.client.flush(60) and rig.numbers() == [1]
    rig.server.fenced = True
    batch(rig, 1)
    wait_for("its own server fences it", lambda: rig.fenced)


def test_of_how_far_a_region_is_only_the_newest_report_is_kept(rig: Rig) -> None:
    for region, done in ((0, 1), (1, 1), (0, 2), (0, 3)):
        rig.client.report(type="region-progress", region=region, run=1, tasks_done=done, tasks_total=9)
    rig.client.report(type="region-finished", region=0, run=1)
    rig.client.start()
    assert rig.client.flush(60)
    kept: list[dict[str, Any]] = rig.server.reports
    assert [(report["type"], report["region"], report["tasks_done"]) for report in kept] == [
        ("region-progress", 1, 1),
        ("region-progress", 0, 3),
        ("region-finished", 0, 0),
    ]


def test_while_nobody_answers_old_batches_are_forgotten_and_nothing_else(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH_REPORTS_KEPT", 4)
    rig.client.report(type="running")
    for number in range(10):
        batch(rig, number)
    rig.client.start()
    assert rig.client.flush(60)
    kept: list[dict[str, Any]] = rig.server.reports
    assert [report["type"] for report in kept] == ["running", "batch", "batch", "batch"]
    assert [report["batch_id"] for report in kept[1:]] == [7, 8, 9]


def test_of_many_batches_that_wait_it_is_left_out_what_tasks_did(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REPORTS_IN_FULL", 2)
    for number in range(4):
        vertex = VertexBatch("v", 2, 2, records_in=number, by_task=TaskWork((1, 2)))
        rig.client.report(type="batch", batch_id=number, vertices=(vertex,))
    rig.client.start()
    assert rig.client.flush(60)
    vertices = [vertex for report in rig.server.reports for vertex in report["vertices"]]
    assert [vertex["by_task"] is not None for vertex in vertices] == [True, True, False, False]
    assert [vertex["records_in"] for vertex in vertices] == [0, 1, 2, 3]


def test_texts_are_such_that_the_server_takes_them(rig: Rig) -> None:
    rig.client.start()
    rig.client.report(type="failed", error="begin" + "x" * 20_000_000 + "end", stack="\ud800 half a pair")
    assert rig.client.flush(60)
    (report,) = rig.server.reports
    assert len(report["error"]) < 40_000
    assert report["error"].startswith("beginx") and report["error"].endswith("xend")
    assert "characters left out" in report["error"]
    assert report["stack"] == "? half a pair"
