"""What `logs` and `attempts` print, and for how long `logs -f` goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.cli import logs

Run = Callable[..., Any]
JOB_ID = "0123456789abcdef0123456789abcdef"
SERVER_AWAY = (503, {"errors": ["The database is away."]})


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_POLL_S", 0.01)
    monkeypatch.setattr(logs, "_LOOK_S", 0.0)
    monkeypatch.setattr("app.cli.client.UNAVAILABLE_PATIENCE_S", 0.0)


def attempt(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "attempt": number,
        "startTimestampInMillis": 1_795_204_804_384,
        "endTimestampInMillis": None,
        "ending": None,
        "message": None,
        "driverPid": 4711,
        "host": "build",
        "sparkVersion": "4.3.0",
        "sparkUi": None,
        "log": {"available": True, "sizeInBytes": 1_500, "cutInBytes": 0},
    } | changes


FAILED = attempt(1, endTimestampInMillis=1_795_204_809_000, ending="FAILED", message="It broke.")


def part(text: str, following: int, *, complete: bool = False, size: int | None = None) -> Any:
    """``size``: of the whole log, which an older server does not tell."""
    headers = {"X-Slotwise-Next": str(following), "X-Slotwise-Complete": str(complete).lower()}
    if size is not None:
        headers["X-Slotwise-Size"] = str(size)
    return 200, text.encode(), {"Content-Type": "text/plain; charset=utf-8", **headers}


def path(number: int) -> str:
    return f"/jobs/{JOB_ID}/attempts/{number}/logs"


def with_attempts(fake: Any, *lists: list[dict[str, Any]]) -> None:
    fake.on("GET", f"/jobs/{JOB_ID}/attempts", *((200, {"attempts": found}) for found in lists))


def test_the_log_of_an_executor_is_printed_part_by_part(slotwise: Run, fake: Any) -> None:
    with_attempts(fake, [attempt(2), FAILED])
    fake.on("GET", path(2), part("one\n", 4, size=8), part("two\n", 8, size=8))
    outcome = slotwise("logs", "delays", "--executor", "3", "--output", "stdout")
    assert (outcome.status, outcome.out) == (0, "one\ntwo\n")
    asked = [request.query for request in fake.sent("GET", path(2))]
    assert [(one["from"], one["executor"], one["output"]) for one in asked] == [
        (at, "3", "stdout") for at in ("0", "4")
    ]
    # Where the server does not get on it is not asked again, nor for what came after the first request.
    for later in (part("two\n", 4), part("two\n", 8, size=12)):
        fake.on("GET", path(2), part("one\n", 4, size=8), later, part("never\n", 12, size=16))
        assert slotwise("logs", "delays", "--executor", "3").out == "one\ntwo\n"
    assert "give --executor too" in slotwise("logs", "delays", "--output", "stdout").err


NONE_YET = (410, {"errors": ["The workers have no log of executor 3; there are logs of: 0."]})


def test_the_log_of_an_executor_is_followed_over_attempts(slotwise: Run, fake: Any) -> None:
    """Attempts 2 and 3 are of one driver, and 4 is of another one."""
    second, third = attempt(2), attempt(3)
    fourth = attempt(4, driverPid=9)
    with_attempts(fake, *[[second]] * 3, *[[third, second]] * 3, [fourth], [fourth])
    fake.on("GET", f"/jobs/{JOB_ID}/status", (200, {"status": "RUNNING"}), (200, {"status": "FINISHED"}))
    replaced = (410, {"errors": ["Logs of executors can be had of the newest attempt only, which is 3."]})
    fake.on("GET", path(2), NONE_YET, part("one\n", 4), replaced)
    fake.on("GET", path(3), part("two\n", 8, complete=True))
    fake.on("GET", path(4), part("three\n", 6, complete=True))
    outcome = slotwise("logs", "delays", "--executor", "3", "-f")
    assert (outcome.status, outcome.out) == (0, "one\ntwo\nthree\n")
    sentences = [answer[1]["errors"][0] for answer in (NONE_YET, replaced)]
    assert outcome.err.splitlines() == sentences
    begins = [fake.sent("GET", path(number))[0].query["from"] for number in (2, 3, 4)]
    assert begins == ["0", "4", "0"], "another driver has other executors"


@pytest.mark.parametrize("last", [FAILED, attempt(1)])
def test_an_executor_that_never_can_be_had_is_not_waited_for(
    slotwise: Run, fake: Any, last: dict[str, Any]
) -> None:
    with_attempts(fake, [last])
    never = (409, {"errors": ["Jobs of this server have no executors."]})
    fake.on("GET", path(1), NONE_YET if last is FAILED else never)
    outcome = slotwise("logs", "delays", "--executor", "3", "-f", "--attempt", "1")
    assert (outcome.status, outcome.out) == (1, "")
    assert "executor" in outcome.err


def test_logs_prints_the_newest_attempt_part_by_part(slotwise: Run, fake: Any) -> None:
    with_attempts(fake, [attempt(2), FAILED])
    fake.on("GET", path(2), part("one\ntwo \u00e9\x1b[31m\n", 9), part("three\n", 15), part("", 15))
    outcome = slotwise("logs", "delays")
    assert (outcome.status, outcome.out) == (0, "one\ntwo \u00e9?[31m\nthree\n")
    assert [request.query["from"] for request in fake.sent("GET", path(2))] == ["0", "9", "15"]


def test_logs_ends_where_the_log_ended_when_it_was_asked_for(slotwise: Run, fake: Any) -> None:
    with_attempts(fake, [attempt(1)])
    fake.on("GET", path(1), *(part("on\n", 3 * number, size=3 * number + 3) for number in range(1, 9)))
    assert slotwise("logs", "delays").out == "on\non\n"


def test_logs_json_has_a_document_per_line(slotwise: Run, fake: Any) -> None:
    with_attempts(fake, [FAILED])
    fake.on("GET", path(1), part("one\ntwo\n", 8), part("", 8))
    outcome = slotwise("logs", "delays", "--attempt", "1", "--json")
    assert [json.loads(line) for line in outcome.out.splitlines()] == [
        {"attempt": 1, "line": "one"},
        {"attempt": 1, "line": "two"},
    ]


def test_following_goes_over_attempts_and_a_server_that_is_away_to_the_end_of_the_job(
    slotwise: Run, fake: Any
) -> None:
    with_attempts(fake, [FAILED], [FAILED], [attempt(4), attempt(3), attempt(2), FAILED])
    statuses = [(200, {"status": status}) for status in ("RUNNING", "RUNNING", "RUNNING", "FAILED")]
    fake.on("GET", f"/jobs/{JOB_ID}/status", *statuses)
    fake.on("GET", path(1), part("one\n", 4), part("", 4), part("the error", 13, complete=True))
    fake.on("GET", path(2), (410, {"errors": ["The log of attempt 2 is not there."]}))
    fake.on("GET", path(3), (404, {"errors": ["Attempt 3 is not kept any more."]}))
    fake.on("GET", path(4), SERVER_AWAY, SERVER_AWAY, part("three\n", 6, complete=True))
    outcome = slotwise("logs", "delays", "-f")
    assert (outcome.status, outcome.out) == (0, "one\nthe error\nthree\n")
    assert outcome.err.splitlines() == [
        "The log of attempt 2 is not there.",
        "Attempt 3 is not kept any more.",
        "Waiting on: The database is away. The server is asked again.",
        "Waiting on: the server answers again.",
    ]


@pytest.mark.parametrize("options", [("--attempt", "1"), ("--attempt", "1", "-f")])
def test_a_server_that_has_not_answered_yet_is_not_waited_for(
    slotwise: Run, fake: Any, options: tuple[str, ...]
) -> None:
    fake.on("GET", f"/jobs/{JOB_ID}/status", SERVER_AWAY, (200, {"status": "RUNNING"}))
    fake.on("GET", path(1), SERVER_AWAY, part("one\n", 4, complete=True))
    outcome = slotwise("logs", JOB_ID, *options)
    assert (outcome.status, outcome.err) == (1, "The database is away.\n")


def test_following_one_attempt_ends_with_it(slotwise: Run, fake: Any) -> None:
    fake.on("GET", path(1), part("one\n", 4, complete=True))
    outcome = slotwise("logs", "delays", "--attempt", "1", "-f")
    assert (outcome.status, outcome.out) == (0, "one\n")


def test_what_cannot_be_had_is_a_sentence(slotwise: Run, fake: Any) -> None:
    with_attempts(fake, [])
    outcome = slotwise("logs", "delays")
    assert (outcome.status, outcome.err) == (1, "The job has had no attempt yet, so there is no log.\n")
    fake.on("GET", path(7), (404, {"errors": ["Job x has no attempt 7: its newest is 1."]}))
    for more in ((), ("-f",)):
        outcome = slotwise("logs", "delays", "--attempt", "7", *more)
        assert (outcome.status, outcome.err) == (1, "Job x has no attempt 7: its newest is 1.\n")
    assert slotwise("logs", "delays", "--attempt", "0").status == 2


def test_attempts_are_a_table(slotwise: Run, fake: Any) -> None:
    gone = {"available": False, "sizeInBytes": 0, "cutInBytes": 0}
    running = attempt(2, host=None, sparkUi="http://127.0.0.1:4040")
    with_attempts(fake, [running, {**FAILED, "log": gone}], [])
    lines = slotwise("attempts", "delays").out.splitlines()
    assert lines[1].split()[0] == "2" and "runs" in lines[1] and lines[1].endswith("1.5 kB")
    assert "FAILED" in lines[2] and lines[2].endswith("removed")
    assert lines[3:] == ["attempt 2: Spark's page is at http://127.0.0.1:4040", "attempt 1: It broke."]
    assert slotwise("attempts", "delays").out == "No attempts yet.\n"
    with_attempts(fake, [FAILED])
    assert json.loads(slotwise("attempts", "delays", "--json").out) == [FAILED]


def test_only_a_newline_or_a_carriage_return_ends_a_line(slotwise: Run, fake: Any) -> None:
    with_attempts(fake, [attempt(1)])
    fake.on("GET", path(1), part("a\u2028b\x0cc\x85d\r\n\ne\rf\n", 9), part("", 9))
    outcome = slotwise("logs", "delays", "--json")
    lines = [json.loads(line)["line"] for line in outcome.out.split("\n") if line]
    assert lines == ["a\u2028b\x0cc\x85d", "", "e", "f"]


class Rolled:
    """Plays the log of executor 3, of which files are removed. ``moments``: from one request to the next, how much of
    it has been removed, and how much is written."""

    def __init__(self, fake: Any, log: bytes, *moments: tuple[int, int]) -> None:
        self.asked: list[int] = []
        left = list(moments)

        def answer(request: Any) -> Any:
            complete = len(left) == 1
            removed, written = left[0] if complete else left.pop(0)
            there, at = log[removed:written], int(request.query["from"])
            self.asked.append(at)
            if at > len(there):
                return 416, {"errors": [f"The log ends at {len(there)}."]}
            return part(there[at:].decode(), len(there), complete=complete, size=len(there))

        with_attempts(fake, [attempt(1)])
        fake.routes["GET", path(1)] = answer


def following(slotwise: Run) -> Any:
    return slotwise("logs", "delays", "--executor", "3", "-f", "--attempt", "1")


LINES = b"one\ntwo\nnil\nnul\nsix\nten\nend\nbig\n"


@pytest.mark.parametrize(
    "later",
    [
        # The log is shorter than what was printed; and longer, although more was removed than is new.
        [(8, 24)] * 4,
        [(4, 28)] * 4,
        [(0, 24), (4, 28), (4, 28), (4, 28), (8, 32)],
    ],
)
def test_a_log_of_which_spark_removes_old_files_is_followed_without_loss_or_repetition(
    slotwise: Run, fake: Any, monkeypatch: pytest.MonkeyPatch, later: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(logs, "_LAST_CHARACTERS", 4)
    Rolled(fake, LINES, (0, 20), *later, *later[-1:] * 4)
    outcome = following(slotwise)
    assert (outcome.status, outcome.out, outcome.err) == (0, LINES[: later[-1][1]].decode(), "")


def test_of_a_long_log_only_the_end_is_looked_through(
    slotwise: Run, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LAST_CHARACTERS", 4)
    monkeypatch.setattr(logs, "_LAST_BYTES", 8)
    log = Rolled(fake, LINES, (0, 20), (8, 24), (8, 24), (8, 24), (8, 28), (8, 28))
    assert following(slotwise).out == LINES[:28].decode()
    assert log.asked[:4] == [0, 16, 0, 8], "from what was printed last on, then the last 8 bytes"


@pytest.mark.parametrize("printed", ["the password is ******\n", "caf\ufffd\n"])
def test_what_has_other_bytes_in_the_log_is_not_compared(slotwise: Run, fake: Any, printed: str) -> None:
    with_attempts(fake, [attempt(1)])
    fake.on("GET", path(1), part(printed, 40), part("\nend\n", 44, complete=True))
    assert following(slotwise).out == f"{printed}end\n"
    assert [request.query["from"] for request in fake.sent("GET", path(1))] == ["0", "39"]


def test_a_line_that_was_printed_and_goes_on_growing_is_waited_for(slotwise: Run, fake: Any) -> None:
    with_attempts(fake, [attempt(1)])
    grown = part("one\ntwo and\n", 12, complete=True)
    fake.on("GET", path(1), part("one\ntwo", 7, size=7), part("one\n", 4, size=9), grown)
    assert following(slotwise).out == "one\ntwo\n and\n"


def test_where_a_log_that_repeats_itself_goes_on_is_not_guessed(
    slotwise: Run, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LAST_CHARACTERS", 5)
    Rolled(fake, b"row 7\nbeat\nbeat\nrow 8\nbeat\nend\n", (0, 11), (11, 27), (11, 27), (11, 31))
    outcome = following(slotwise)
    assert (outcome.status, outcome.out) == (0, "row 7\nbeat\nbeat\nrow 8\nbeat\nend\n")
    assert "may be missing, or come again" in outcome.err


def test_lines_that_spark_has_removed_before_they_were_read_are_said_to_be_missing(
    slotwise: Run, fake: Any
) -> None:
    Rolled(fake, LINES, (0, 8), (12, 16), (12, 16))
    outcome = following(slotwise)
    assert (outcome.status, outcome.out) == (0, "one\ntwo\nnul\n")
    assert (
        outcome.err
        == "Spark has removed old files of this log: lines before the next one may be missing, or come again.\n"
    )


def test_a_log_of_a_driver_that_ends_before_what_was_read_is_an_error(slotwise: Run, fake: Any) -> None:
    with_attempts(fake, [attempt(1)])
    fake.on("GET", path(1), part("one\n", 4), (416, {"errors": ["It ends at 2."]}))
    outcome = slotwise("logs", "delays", "-f", "--attempt", "1")
    assert (outcome.status, outcome.out, outcome.err) == (1, "one\n", "It ends at 2.\n")
