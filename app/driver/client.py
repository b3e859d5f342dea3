"""The driver's end of the driver protocol (`app.model.protocol`).

Threads of their own talk to the control plane; the job never waits for them. When nobody answers, the driver goes on
with its job, keeps its reports, and looks up the address anew before each try: a control plane that was started again
may listen elsewhere. With the standard library only: a driver runs in environments of jobs, which have PySpark and
nothing of ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import logging
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.model.fromjson import from_json
from app.model.protocol import REPORTS_LIMIT_BYTES, DriverSpec, Orders, Registration, Report

log = logging.getLogger(__name__)

_LONG_POLL_MS = 25_000
_LOOK_EVERY_S = 0.5
_CONNECT_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 20.0
_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 2.0
_BATCH_REPORTS_KEPT = 5_000
_REPORTS_IN_FULL = 100
"""Of those that wait while nobody answers; of the next ones what tasks did is left out, which is most of them."""
_REPORTS_PER_CALL = 500
_CALL_CHARS = REPORTS_LIMIT_BYTES // 2
_TEXT_LIMIT_CHARS = 32 * 1024
_OK = 200
_GONE = 410


class ControlPlaneClient:
    """Registers, fetches orders and delivers reports for one attempt, until `close`.

    ``on_orders`` is called (in a thread of this client) whenever orders differ from those before; ``on_fenced`` once,
    when a newer owner or attempt exists. ``before_orders`` is called before each call for orders, by which the control
    plane knows that the driver lives: what does not return makes the driver silent.
    """

    def __init__(
        self,
        spec: DriverSpec,
        registration: Registration,
        *,
        on_orders: Callable[[Orders], None],
        on_fenced: Callable[[], None],
        before_orders: Callable[[], object] = lambda: None,
    ) -> None:
        self._spec = spec
        self._registration = registration
        self._on_orders = on_orders
        self._on_fenced = on_fenced
        self._before_orders = before_orders
        self._epoch = spec.epoch
        self._orders = Orders(spec.plan_version, spec.parallelism, "none", spec.epoch, slots=spec.held_slots)
        self._reports: deque[Report] = deque()
        self._next_seq = 1
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._registered = threading.Event()
        self._address = OwnerAddress(spec.address_file, self._closed)
        self._threads = [
            threading.Thread(target=self._guarded, args=(loop,), name=name, daemon=True)
            for name, loop in (
                ("orders", self._fetch_orders),
                ("reports", self._deliver_reports),
                ("address", self._address.watch),
            )
        ]

    @property
    def epoch(self) -> int:
        """The epoch of the control plane that was heard last."""
        return self._epoch

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def register(self, registration: Registration) -> None:
        """Say what is known of the driver now, before any report that follows."""
        with self._changed:
            self._registration = registration
            self._changed.notify_all()

    def report(self, **fields: Any) -> None:
        """Take down a report for delivery; it gets the next number."""
        fields = {name: _bounded(value) for name, value in fields.items()}
        with self._changed:
            report = Report(seq=self._next_seq, at_ms=time.time_ns() // 1_000_000, **fields)
            self._next_seq += 1
            self._make_room(report)
            if len(self._reports) >= _REPORTS_IN_FULL:
                report = without_tasks(report)
            self._reports.append(report)
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until every report is acknowledged; whether they all were within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._reports:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._closed.is_set():
                    return False
                self._changed.wait(left_s)
        return True

    def close(self) -> None:
        """Stop talking. What is not delivered is lost."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._address.let_go()

    # -- the threads

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except Exception:
            if not self._closed.is_set():
                log.exception("the thread that talks to the control plane ended")

    def _deliver_reports(self) -> None:
        known: Registration | None = None
        while not self._closed.is_set():
            with self._changed:
                while not self._reports and self._registration is known and not self._closed.is_set():
                    self._changed.wait()
                registration, waiting = self._registration, list(self._reports)
            if registration is not known:
                self._call("POST", "register", dataclasses.asdict(registration), self._take_orders)
                self._registered.set()
                known = registration
            elif waiting:
                self._call("POST", "reports", _body_of(waiting), self._take_acknowledgement)

    def _fetch_orders(self) -> None:
        self._registered.wait()
        while not self._closed.is_set():
            self._before_orders()
            orders = self._orders
            known = f"plan={orders.plan_version}&stop={orders.stop}&slots={orders.slots}"
            path = f"orders?{known}&restarts={orders.restarts_text}&wait_ms={_LONG_POLL_MS}"
            self._call(
                "GET", path, None, self._take_orders, timeout_s=_LONG_POLL_MS / 1000 + _ANSWER_TIMEOUT_S
            )

    def _take_orders(self, body: dict[str, Any]) -> None:
        orders = from_json(Orders, body)
        if orders.epoch < self._epoch:
            return
        self._epoch = orders.epoch
        before, self._orders = self._orders, orders
        if _level(before) != _level(orders):
            self._on_orders(orders)

    def _take_acknowledgement(self, body: dict[str, Any]) -> None:
        acknowledged, epoch = int(body["acknowledged"]), int(body.get("epoch", 0))
        if 0 < epoch < self._epoch:
            # The address of the owner may not have been written down yet.
            self._closed.wait(_FIRST_RETRY_S)
            return
        self._epoch = max(self._epoch, epoch)
        with self._changed:
            while self._reports and self._reports[0].seq <= acknowledged:
                self._reports.popleft()
            self._changed.notify_all()

    def _call(
        self,
        method: str,
        path: str,
        body: object,
        take: Callable[[dict[str, Any]], None],
        timeout_s: float = _ANSWER_TIMEOUT_S,
    ) -> None:
        """One call, repeated until it is answered, the attempt is fenced, or this client is closed."""
        retry_s = _FIRST_RETRY_S
        away = False
        while not self._closed.is_set():
            try:
                status, answer = self._ask(method, path, body, timeout_s)
                if status == _GONE:
                    # A server of an earlier version gave none.
                    if self._spec.home and json.loads(answer).get("home") != self._spec.home:
                        raise ValueError("a server of another data directory has its address")
                    self._fenced()
                    return
                if status != _OK:
                    raise ValueError(f"it answers with status {status}")
                take(json.loads(answer))
            except (
                http.client.HTTPException,
                OSError,
                ValueError,
                KeyError,
                TypeError,
                AttributeError,
            ) as error:
                if self._closed.is_set():
                    return
                if not away:
                    log.warning("the control plane does not answer; the job goes on: %s", error)
                away = True
            else:
                if away:
                    log.warning("the control plane answers again")
                return
            self._closed.wait(retry_s * random.uniform(0.75, 1.25))
            retry_s = min(retry_s * 2, _LAST_RETRY_S)

    def _ask(self, method: str, path: str, body: object, timeout_s: float) -> tuple[int, bytes]:
        headers = {
            "Authorization": f"Bearer {self._spec.secret}",
            "X-Slotwise-Epoch": str(self._epoch),
            **({} if body is None else {"Content-Type": "application/json"}),
        }
        place = f"/internal/v1/jobs/{self._spec.job_id}/attempts/{self._spec.attempt}/{path}"
        sent = None if body is None else json.dumps(body, allow_nan=False).encode()
        return self._address.call(method, place, sent, headers, timeout_s)

    def _fenced(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._registered.set()
            with self._changed:
                self._changed.notify_all()
            self._on_fenced()

    def _make_room(self, newer: Report) -> None:
        """Drop a report that ``newer`` replaces: the newest one on a region's progress, or on executors, says all.
        Committed batches are kept up to `_BATCH_REPORTS_KEPT` while nobody answers: the newest are enough."""
        if newer.type in ("region-progress", "executors"):
            old: tuple[str, int] = (newer.type, newer.region)
        elif len(self._reports) >= _BATCH_REPORTS_KEPT:
            old = ("batch", -1)
        else:
            return
        for position, report in enumerate(self._reports):
            if (report.type, report.region) == old:
                del self._reports[position]
                return


def without_tasks(report: Report) -> Report:
    """Without what each task did."""
    if not any(each.by_task for each in report.vertices):
        return report
    vertices = tuple(dataclasses.replace(each, by_task=None) for each in report.vertices)
    return dataclasses.replace(report, vertices=vertices)


def _body_of(reports: list[Report]) -> dict[str, Any]:
    """The first of ``reports``, as many as the control plane takes in one call."""
    taken: list[dict[str, Any]] = []
    chars = 0
    for report in reports[:_REPORTS_PER_CALL]:
        entry = dataclasses.asdict(report)
        chars += len(json.dumps(entry))
        if taken and chars > _CALL_CHARS:
            break
        taken.append(entry)
    return {"reports": taken}


def _bounded(value: Any) -> Any:
    """A text that the control plane takes: valid Unicode, and of a message of megabytes its beginning and its end."""
    if not isinstance(value, str):
        return value
    if len(value) > _TEXT_LIMIT_CHARS:
        half = _TEXT_LIMIT_CHARS // 2
        value = f"{value[:half]} [... {len(value) - 2 * half} characters left out ...] {value[-half:]}"
    return value.encode("utf-8", "replace").decode()


def _level(orders: Orders) -> tuple[int, str, int, str]:
    """What makes orders other ones. The regions of a BATCH job have a plan version for each change."""
    return orders.plan_version, orders.stop, orders.slots, orders.restarts_text


def address_in(file: Path) -> str:
    """The address of the server that owns a job, which has written it there; empty if it has not yet.

    Raises:
        OSError: the file cannot be read.
    """
    # What follows the address is for those who write it.
    return next(iter(file.read_text(encoding="utf-8").split()), "")


class OwnerAddress:
    """The address of the job's owner in ``file``, and the sockets to what it was. `watch` until ``closed`` is set.

    A control plane that is stopped holds the connections to it open and answers none. When another one takes the job
    over it writes its address into the file: then the driver lets go of the old connections instead of waiting for
    timeouts.
    """

    def __init__(self, file: str, closed: threading.Event) -> None:
        self._file = Path(file)
        self._closed = closed
        self._sockets: list[socket.socket] = []
        self._guard = threading.Lock()

    def read(self) -> str:
        """
        Raises:
            OSError: the file cannot be read.
        """
        return address_in(self._file)

    def call(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        """The status and the body of the answer of the present owner.

        Raises:
            OSError, http.client.HTTPException, ValueError: there was none.
        """
        address = self.read()
        place = urlsplit(address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_CONNECT_TIMEOUT_S)
        with contextlib.closing(connection):
            connection.connect()
            connection.sock.settimeout(timeout_s)
            self._note(connection.sock)
            if self.read() != address:
                # Nobody would let go of this one.
                raise ConnectionAbortedError("The job has another owner.")
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()

    def _note(self, opened: socket.socket) -> None:
        with self._guard:
            self._sockets = [one for one in self._sockets if one.fileno() >= 0]
            self._sockets.append(opened)
            if self._closed.is_set():
                raise ConnectionAbortedError("The client of the control plane is closed.")

    def watch(self) -> None:
        known = ""
        while not self._closed.wait(_LOOK_EVERY_S):
            with contextlib.suppress(OSError, ValueError):
                address = self.read()
                if address != known:
                    self.let_go(urlsplit(address).port)
                    known = address

    def let_go(self, but_port: int | None = None) -> None:
        """Close all connections but those to the new address: whoever waits for an answer on them tries again."""
        with self._guard:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    if one.getpeername()[1] != but_port:
                        one.shutdown(socket.SHUT_RDWR)
