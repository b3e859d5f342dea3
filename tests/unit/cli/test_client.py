"""What every command has in common: the server's address, tokens, errors, and how a job is named."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.api.mark import API_VERSION, MARK
from app.cli import client as client_module
from app.cli.client import Client
from app.cli.errors import NoServer, Refused, TimeIsOver
from app.cli.jobs import accepted
from app.cli.submit import send

Run = Callable[..., Any]
JOB_ID = "0123456789abcdef0123456789abcdef"
OTHER_ID = "0199999999999999999999999999999f"


def overview(*jobs: tuple[str, str, str]) -> tuple[int, dict[str, Any]]:
    return 200, {
        "jobs": [
            {"jid": jid, "name": name, "state": state, "start-time": 1, "duration": 5}
            for jid, name, state in jobs
        ]
    }


def test_a_server_that_is_not_there_is_one_sentence(slotwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        monkeypatch.setenv("SLOTWISE_SERVER", url)
        outcome = slotwise("jobs")
    assert outcome.status == 1
    assert outcome.err == f"No Slotwise server at {url}; start one with: slotwise serve\n"


def test_a_host_that_is_not_known_is_no_server_that_is_not_started(slotwise: Run) -> None:
    outcome = slotwise("jobs", "--server", "http://nowhere.invalid:8081")
    assert outcome.status == 1
    assert outcome.err.startswith("The server http://nowhere.invalid:8081 cannot be reached: ")
    assert "slotwise serve" not in outcome.err
    assert outcome.out == ""


def test_the_servers_sentences_are_printed_as_they_are(slotwise: Run, fake: Any) -> None:
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (409, {"errors": ["First.", "Second."]}))
    outcome = slotwise("explain", JOB_ID)
    assert (outcome.status, outcome.err) == (1, "First.\nSecond.\n")


def test_an_answer_without_sentences_names_the_request_and_the_status(slotwise: Run, fake: Any) -> None:
    fake.on("GET", "/jobs/overview", (500, "boom"))
    outcome = slotwise("jobs")
    assert outcome.status == 1
    assert outcome.err == f"GET {fake.url}/jobs/overview answered 500 Internal Server Error.\n"


def test_a_503_is_asked_again(slotwise: Run, fake: Any) -> None:
    away = (503, {"errors": ["No owner."]}, {"Retry-After": "0"})
    fake.on("GET", "/jobs/overview", away, overview((JOB_ID, "delays", "RUNNING")))
    outcome = slotwise("jobs", "--json")
    assert outcome.status == 0
    assert [job["jid"] for job in outcome.json] == [JOB_ID]
    assert len(fake.sent("GET", "/jobs/overview")) == 2


@pytest.mark.parametrize(("method", "times"), [("GET", 3), ("PUT", 1)])
def test_who_waits_for_what_was_accepted_waits_for_a_server_that_is_started_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], method: str, times: int
) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        if len(asked) < 3:
            raise httpx.ConnectError("Connection refused")
        return httpx.Response(200, json={}, headers={MARK: API_VERSION})

    monkeypatch.setattr(client_module, "_AWAY_PAUSE_S", 0.0)
    with (
        closing(Client(transport=httpx.MockTransport(answer))) as client,
        contextlib.suppress(NoServer),
        accepted(client, "It continues."),
    ):
        client.request(method, "/config")
    assert len(asked) == times
    told = capsys.readouterr().err
    assert (
        told.count("does not answer. The server is asked again for up to 60 s.")
        == told.count("answers again")
        == (method == "GET")
    )


def test_a_server_that_stays_away_is_an_error_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    monkeypatch.setattr(client_module, "_AWAY_PAUSE_S", 0.0)
    with (
        closing(Client(transport=httpx.MockTransport(refuse))) as client,
        pytest.raises(TimeIsOver, match=r"It continues\."),
        accepted(client, "It continues.", 0.01),
    ):
        client.get("/config")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the client, which passes only where it sleeps."""

    def sleep(time_s: float) -> None:
        clock.now_s += time_s

    clock = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s, sleep=sleep)
    monkeypatch.setattr(client_module, "time", clock)
    return clock


def away(request: httpx.Request) -> httpx.Response:
    return httpx.Response(503, json={"errors": ["The database is away."]}, headers={MARK: API_VERSION})


def test_what_is_waited_for_is_waited_for_no_longer_than_is_said(
    clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Client(transport=httpx.MockTransport(away))) as client:
        with pytest.raises(Refused, match="away"), client.outlasting(60.0):
            client.get("/config")
        # The first 10 s are those for which every 503 is asked again.
        told = "Waiting on: The database is away. The server is asked again for up to 50 s.\n"
        assert capsys.readouterr().err == told
        clock.now_s = 0.0
        with pytest.raises(Refused, match="away"), client.outlasting(60.0, until_s=1.0):
            client.get("/config")
        assert clock.now_s == 1.0


def test_no_answer_is_waited_for_longer_than_the_time_that_is_left(clock: SimpleNamespace) -> None:
    limits: list[dict[str, float]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        limits.append(request.extensions["timeout"])
        raise httpx.ReadTimeout("It hangs.")

    with closing(Client(transport=httpx.MockTransport(answer))) as client:
        with pytest.raises(NoServer, match="within 2 s"), client.outlasting(60.0, until_s=2.0):
            client.request("PUT", "/config")
        with pytest.raises(NoServer, match="within 30 s"):
            client.get("/config")
    assert [(each["connect"], each["read"]) for each in limits] == [(2.0, 2.0), (5.0, 30.0)]


def test_outside_of_the_wait_a_server_that_is_away_is_an_error_at_once(clock: SimpleNamespace) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("Connection refused")

    with closing(Client(transport=httpx.MockTransport(refuse))) as client:
        with pytest.raises(NoServer), client.outlasting(60.0):
            client.get("/config")
        assert clock.now_s == 60.0
        with pytest.raises(NoServer):
            client.get("/config")
    assert clock.now_s == 60.0


def test_a_server_that_is_back_with_a_refusal_answers_again(
    clock: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = httpx.Response(404, json={"errors": ["No such job."]}, headers={MARK: API_VERSION})
    transport = httpx.MockTransport(lambda request: away(request) if clock.now_s < 20.0 else gone)
    with (
        closing(Client(transport=transport)) as client,
        pytest.raises(Refused, match="No such job"),
        client.outlasting(60.0),
    ):
        client.get("/config")
    assert capsys.readouterr().err.splitlines()[1:] == ["Waiting on: the server answers again."]


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_before_a_server_that_is_away_is_waited_for_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    answers = [httpx.Response(status, text="Bad Gateway"), httpx.Response(200, json={}, headers={MARK: "v1"})]
    monkeypatch.setattr(client_module, "_AWAY_PAUSE_S", 0.0)
    monkeypatch.setattr(client_module, "UNAVAILABLE_PATIENCE_S", 0.0)
    with (
        closing(Client(transport=httpx.MockTransport(lambda _: answers.pop(0)))) as client,
        accepted(client, "It continues."),
    ):
        client.get("/config")
    assert "does not answer" in capsys.readouterr().err and answers == []


def test_who_gives_up_is_told_what_continues() -> None:
    with (
        closing(Client(transport=httpx.MockTransport(lambda _: httpx.Response(502)))) as client,
        pytest.raises(NoServer, match=r"It continues\."),
        accepted(client, "It continues."),
    ):
        client.request("POST", "/jobs")


@pytest.mark.parametrize(("headers", "times"), [({}, 1), ({"Retry-After": "0"}, 2)])
def test_a_submission_is_repeated_only_if_the_server_says_so(
    fake: Any, headers: dict[str, str], times: int
) -> None:
    doubt = (503, {"errors": ["It is not known whether job 1 was submitted."]}, headers)
    fake.on("POST", "/jobs", doubt, (202, {"jobid": JOB_ID, "jobUrl": ""}))
    with closing(Client(fake.url)) as client:
        if times == 1:
            with pytest.raises(Refused, match="not known whether job 1"):
                send(client, {}, {})
        else:
            assert send(client, {}, {}) == JOB_ID
    keys = [request.headers["idempotency-key"] for request in fake.sent("POST", "/jobs")]
    assert len(keys) == times and len(set(keys)) == 1


def test_a_declaration_whose_answer_was_lost_is_known_again(fake: Any) -> None:
    path = f"/jobs/{JOB_ID}/resource-requirements"
    lost, stale = (503, {"errors": ["It is not known."]}, {"Retry-After": "0"}), (412, {"errors": ["stale"]})
    fake.on("PUT", path, stale, lost, (200, {}, {"ETag": '"2"'}))
    with closing(Client(fake.url)) as client:
        assert client.declare(path, lambda current: current)[:2] == (True, 2)
    first, second, again = (request.headers["idempotency-key"] for request in fake.sent("PUT", path))
    assert first != second == again


@pytest.mark.parametrize("text", [JOB_ID, JOB_ID.upper(), "0123", "delays"])
def test_a_job_is_named_by_id_by_unique_prefix_or_by_name(slotwise: Run, fake: Any, text: str) -> None:
    outcome = slotwise("show", text, "--json")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.json["jid"] == JOB_ID


def test_an_ambiguous_prefix_names_the_candidates(slotwise: Run, fake: Any) -> None:
    fake.on(
        "GET", "/jobs/overview", overview((JOB_ID, "a", "RUNNING"), ("0123" + OTHER_ID[4:], "b", "FAILED"))
    )
    outcome = slotwise("show", "0123")
    assert outcome.status == 1
    assert outcome.err.startswith("Several job ids start with '0123': ")
    assert JOB_ID in outcome.err


def test_a_name_of_several_jobs_means_the_one_that_has_not_ended(slotwise: Run, fake: Any) -> None:
    fake.on(
        "GET", "/jobs/overview", overview((OTHER_ID, "delays", "FINISHED"), (JOB_ID, "delays", "RUNNING"))
    )
    assert slotwise("show", "delays", "--json").json["jid"] == JOB_ID
    both = overview(
        (OTHER_ID, "delays", "CREATED"), (JOB_ID, "delays", "RUNNING"), ("f" * 32, "delays", "FAILED")
    )
    fake.on("GET", "/jobs/overview", both)
    outcome = slotwise("show", "delays")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == (
        f"Several jobs are called 'delays'; name one by its id: {OTHER_ID} (CREATED), {JOB_ID} (RUNNING).\n"
    )


@pytest.fixture
def all_ended(fake: Any) -> None:
    """Three jobs called delays; `JOB_ID` was submitted last."""
    code, answer = overview(*((jid, "delays", "FAILED") for jid in (OTHER_ID, JOB_ID, "f" * 32)))
    answer["jobs"][1]["start-time"] = 9
    fake.on("GET", "/jobs/overview", (code, answer))


def test_of_jobs_that_have_all_ended_the_newest_is_shown(slotwise: Run, fake: Any, all_ended: None) -> None:
    outcome = slotwise("show", "delays", "--json")
    assert (outcome.status, outcome.json["jid"]) == (0, JOB_ID)
    assert outcome.err == (
        f"All 3 jobs that are called 'delays' have ended. This is the newest, {JOB_ID} (FAILED); the others are named "
        "by their ids.\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ("cancel", "delays"),
        ("stop", "delays"),
        ("require", "delays", "delays=1:2"),
        ("share", "delays", "--weight", "2"),
    ],
)
def test_jobs_that_have_all_ended_are_not_changed(
    slotwise: Run, fake: Any, all_ended: None, command: tuple[str, ...]
) -> None:
    outcome = slotwise(*command)
    assert (outcome.status, outcome.out) == (1, "")
    assert (
        outcome.err == f"All 3 jobs that are called 'delays' have ended; the newest is {JOB_ID} (FAILED).\n"
    )
    assert [request.method for request in fake.requests] == ["GET"]


def test_which_of_them_is_forgotten_has_to_be_said(slotwise: Run, fake: Any, all_ended: None) -> None:
    outcome = slotwise("forget", "delays")
    assert outcome.status == 1
    assert outcome.err.startswith("Several jobs are called 'delays'; name one by its id: ")


def test_an_unknown_job_is_a_sentence(slotwise: Run, fake: Any) -> None:
    outcome = slotwise("show", "nope")
    assert outcome.status == 1
    assert outcome.err == "No job has the name 'nope' or an id that starts with it; see: slotwise jobs\n"


@pytest.mark.parametrize("line", ["s3cret", "ops:s3cret", "# for ops\n\nops:s3cret\nother:t"])
def test_the_token_is_read_from_the_file(slotwise: Run, fake: Any, tmp_path: Path, line: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(line + "\n")
    assert slotwise("jobs", "--token-file", str(file)).status == 0
    assert fake.requests[-1].headers["authorization"] == "Bearer s3cret"


def test_the_token_is_read_from_the_environment(
    slotwise: Run, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOTWISE_TOKEN", "s3cret")
    assert slotwise("jobs").status == 0
    assert fake.requests[-1].headers["authorization"] == "Bearer s3cret"


def test_a_401_says_how_to_give_a_token(slotwise: Run, fake: Any) -> None:
    fake.on("GET", "/jobs/overview", (401, {"errors": ["A bearer token is needed."]}))
    outcome = slotwise("jobs")
    assert outcome.err == "A bearer token is needed.\nSet SLOTWISE_TOKEN or give --token-file.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["jobs", "--server", "localhost:8081"], "'localhost:8081' is not the address of a server"),
        (["jobs", "--token-file", "/nonexistent"], "The token file /nonexistent cannot be read"),
        (["jobs", "--nope"], "No such option: --nope"),
        (["nope"], "No such command 'nope'"),
        (["rescales", "x", "--cause", "WHIM"], "'WHIM' is not one of 'INITIAL_SCHEDULE'"),
        (["rescales", "x", "--limit", "0"], "Invalid value for '--limit'"),
    ],
)
def test_what_is_typed_wrongly_ends_with_2_and_a_sentence(
    slotwise: Run, arguments: list[str], sentence: str
) -> None:
    outcome = slotwise(*arguments)
    assert outcome.status == 2
    assert sentence in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:99999", "http://[::1", "http://127.0.0.1:abc", "ftp://x", ""]
)
def test_an_address_that_is_none_is_a_sentence(slotwise: Run, server: str) -> None:
    outcome = slotwise("jobs", "--server", server)
    assert outcome.status == 2
    assert "is not the address of a server" in outcome.err


def test_something_else_than_slotwise_is_a_sentence(slotwise: Run, fake: Any) -> None:
    fake.on("GET", "/jobs/overview", (200, ["hello"]))
    outcome = slotwise("jobs")
    assert (outcome.status, outcome.err) == (1, f"{fake.url} answers, but not as a Slotwise server does.\n")


def test_an_answer_that_no_one_expected_is_no_traceback(slotwise: Run, fake: Any) -> None:
    fake.on("GET", f"/jobs/{JOB_ID}", (200, {}))
    outcome = slotwise("show", JOB_ID)
    assert outcome.status == 1
    assert outcome.err.startswith("slotwise met an error of its own, KeyError")
    assert len(outcome.err.splitlines()) == 1


def test_too_short_a_piece_of_an_id_is_not_taken_for_one(slotwise: Run, fake: Any) -> None:
    outcome = slotwise("show", JOB_ID[:3])
    assert outcome.status == 1
    assert "at least 4 digits are needed" in outcome.err
    assert slotwise("show", JOB_ID[:4]).status == 0


def test_what_the_server_quotes_cannot_command_the_terminal(slotwise: Run, fake: Any) -> None:
    entry = {"timestamp": 1, "exceptionName": "E", "stacktrace": "\x1b[2Jgone\x07", "taskName": None}
    answer = {"exceptionHistory": {"entries": [entry], "truncated": False}}
    fake.on("GET", f"/jobs/{JOB_ID}/exceptions", (200, answer))
    outcome = slotwise("exceptions", "delays")
    assert "?[2Jgone?" in outcome.out
