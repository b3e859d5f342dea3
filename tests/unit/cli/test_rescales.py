"""The rescale history as people see it, and waiting for a rescale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.cli.rescales import history_text, remarks, sentence_of
from tests.unit.cli.conftest import explained

Run = Callable[..., Any]
JOB_ID = "0123456789abcdef0123456789abcdef"
ACCEPTED = (200, {}, {"ETag": '"2"', "X-Slotwise-Rescale": f"{2:032x}"})
"""Of a PUT that leads to record 2."""
REQUIREMENTS = f"/jobs/{JOB_ID}/resource-requirements"
HISTORY = f"/jobs/{JOB_ID}/rescales/history"


def record(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "number": number,
        "rescaleUuid": f"{number:032x}",
        "parallelismInWords": "delays 1->4",
        "startTimestampInMillis": 1_795_204_804_651,
        "endTimestampInMillis": 1_795_204_879_651,
        "terminalState": "COMPLETED",
        "triggerCause": "RECOVERABLE_FAILOVER",
        "terminatedReason": "SUCCEEDED",
        "message": None,
        "requestedBy": "ops",
        "reason": None,
        "rung": "new-driver",
        "outputGapInMillis": 12,
        "rollbackOf": None,
        "causeInWords": "bounds were declared",
        **changes,
    }


def open_record(number: int = 1) -> dict[str, Any]:
    unknown = ("terminalState", "terminatedReason", "endTimestampInMillis", "rung", "outputGapInMillis")
    return record(number, **dict.fromkeys(unknown))


def looks(fake: Any, *histories: list[dict[str, Any]]) -> None:
    """The histories that a command which waits for record 2 finds, one look after another; the last one for ever."""
    left = list(histories)

    def own(_: Any) -> Any:
        found = [one for one in left[0] if one["number"] == 2]
        return (200, found[0]) if found else (404, {"errors": ["No such rescale."]})

    fake.routes["GET", f"/jobs/{JOB_ID}/rescales/details/{2:032x}"] = own
    fake.routes["GET", HISTORY] = lambda _: (200, left.pop(0) if len(left) > 1 else left[0])


def test_remarks_say_who_what_for_and_what_happened() -> None:
    assert remarks(record(reason="evening peak")) == "ops: evening peak"
    assert remarks(record(reason="Too much.", message="Three wait.")) == "ops: Too much; Three wait."
    ignored = record(
        requestedBy=None,
        terminalState="IGNORED",
        terminatedReason="NO_RESOURCES_OR_PARALLELISMS_CHANGE",
        message="8 slots are wanted; only 4 came.\nat x",
    )
    assert remarks(ignored) == "NO_RESOURCES_OR_PARALLELISMS_CHANGE; 8 slots are wanted; only 4 came."
    assert sentence_of(ignored).endswith("output gap 12 ms: 8 slots are wanted; only 4 came")


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_history_fits_the_terminal_and_loses_nothing(width: int) -> None:
    long = record(2, reason="because of a reason that is as long as reasons are " * 3)
    text = history_text([long, record(1, outputGapInMillis=None)], width).plain
    assert max(len(line) for line in text.splitlines()) <= width
    words = " ".join(text.split())
    for part in ("RECOVERABLE_FAILOVER", "COMPLETED", "new-driver", "1 min 15 s", "12 ms", "delays 1->4"):
        assert part in words
    assert words.count("as long as reasons are") == 3


def test_the_plain_history_has_one_line_for_each_record(slotwise: Run, fake: Any) -> None:
    fake.on("GET", HISTORY, (200, [record(2, reason="peak " * 50), open_record(1)]))
    header, first, second = slotwise("rescales", "delays").out.splitlines()
    assert header.split()[:2] == ["#", "when"]
    assert first.rstrip().endswith("peak")
    assert "in progress" in second
    assert second.split()[-4:] == ["-", "delays", "1->4", "ops"]


def test_a_record_without_remarks_ends_with_its_parallelism(slotwise: Run, fake: Any) -> None:
    plain = record(requestedBy=None)
    assert history_text([plain], 120).plain.splitlines()[-1] == "    delays 1->4"
    fake.on("GET", HISTORY, (200, [plain]))
    assert slotwise("rescales", "delays").out.splitlines()[-1].endswith("12 ms  delays 1->4")


def test_one_record_by_its_number(slotwise: Run, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.on("GET", HISTORY, (200, [record(7)]))
    fake.on("GET", f"/jobs/{JOB_ID}/rescales/details/{7:032x}", (200, record(7)))
    outcome = slotwise("rescales", "delays", "--record", "7")
    assert fake.sent("GET", HISTORY)[0].query == {"limit": "1", "after": "8"}
    assert f"7, uuid {7:032x}" in outcome.out
    assert slotwise("rescales", "delays", "--uuid", f"{7:032X}").status == 0
    outcome = slotwise("rescales", "delays", "--record", "5")
    assert (outcome.status, outcome.out) == (1, "")
    assert "no rescale record with the number 5" in outcome.err
    assert slotwise("rescales", "delays", "--record", "../x").status == 2


def delays(in_force: int | None, allowed: int = 4) -> dict[str, Any]:
    bounds = {"lowerBound": 1, "upperBound": 4, "effectiveUpperBound": allowed}
    return {"name": "delays", **bounds, "inForce": in_force}


def wait(
    slotwise: Run, fake: Any, *histories: list[dict[str, Any]], in_force: int | None = 4, allowed: int = 4
) -> Any:
    """`require --wait` against a server that gives these histories one after another."""
    fake.on("PUT", REQUIREMENTS, ACCEPTED)
    looks(fake, *histories)
    vertex = delays(in_force, allowed)
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained(vertices={"a": vertex})))
    return slotwise("require", "delays", "delays=:4", "--wait")


def test_waiting_ends_with_the_record_of_the_change(slotwise: Run, fake: Any) -> None:
    before = record(1)
    outcome = wait(slotwise, fake, [open_record(2), before], [record(2), before])
    assert outcome.status == 0
    assert outcome.out.startswith("Version 2: COMPLETED after 1 min 15 s, new-driver, delays 1->4")
    assert outcome.err == ""


def test_waiting_says_what_the_slots_did_not_suffice_for(slotwise: Run, fake: Any) -> None:
    outcome = wait(slotwise, fake, [record(2), record(1)], in_force=3)
    assert (outcome.status, outcome.err) == (0, "delays runs at 3; up to 4 was asked for.\n")


def test_waiting_says_what_the_operator_s_ceiling_cut(slotwise: Run, fake: Any) -> None:
    outcome = wait(slotwise, fake, [record(2), record(1)], in_force=3, allowed=3)
    told = "delays runs at 3; up to 4 was asked for; its floor and ceiling allow 3.\n"
    assert (outcome.status, outcome.err) == (0, told)


def test_a_job_that_has_no_record_yet_is_waited_for(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, ACCEPTED)
    looks(fake, [], [open_record(2)], [record(2, triggerCause="UPDATE_REQUIREMENT")])
    waits = {"version": 2, "rescale": None, "bounds": {}, "begun": False}
    created = (200, explained(waits, schedulerState="Created"))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", created, (200, explained()))
    assert slotwise("require", "delays", "delays=:4", "--wait").status == 0


def test_a_record_that_is_neither_named_nor_there_yet_is_looked_for_again(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"2"'}))
    looks(fake, [], [record(2)])
    created = (200, explained(schedulerState="Created"))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", created, (200, explained()))
    outcome = slotwise("require", "delays", "delays=:4", "--wait", "--json")
    assert (outcome.status, outcome.json["rescale"]["number"]) == (0, 2)


def test_a_record_that_may_not_be_read_is_not_taken_for_one_that_is_not_kept(
    slotwise: Run, fake: Any
) -> None:
    looks(fake, [record(30)])
    fake.on("PUT", REQUIREMENTS, ACCEPTED)
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained()))
    fake.on("GET", f"/jobs/{JOB_ID}/rescales/details/{2:032x}", (403, {"errors": ["Not for you."]}))
    outcome = slotwise("require", "delays", "delays=:4", "--wait")
    assert (outcome.status, outcome.err) == (1, "Not for you.\n")


@pytest.mark.parametrize("histories", [([],), ([record(3)],), ([open_record(2)], [record(3)])])
def test_a_record_that_is_not_kept_is_not_waited_for(slotwise: Run, fake: Any, histories: Any) -> None:
    outcome = wait(slotwise, fake, *histories)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("How the rescale ended is not known: its record is not kept any more")


def test_many_records_since_do_not_hide_the_own_one(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, ACCEPTED)
    fake.on("GET", f"/jobs/{JOB_ID}/rescales/details/{2:032x}", (200, record(2)))
    fake.on("GET", HISTORY, (200, [record(number) for number in range(60, 40, -1)]))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained()))
    outcome = slotwise("require", "delays", "delays=:4", "--wait", "--json")
    assert (outcome.status, outcome.json["rescale"]["number"]) == (0, 2)
    overtaken = record(2, terminalState="IGNORED", terminatedReason="RESOURCE_REQUIREMENTS_UPDATED")
    fake.on("GET", f"/jobs/{JOB_ID}/rescales/details/{2:032x}", (200, overtaken))
    outcome = slotwise("require", "delays", "delays=:4", "--wait")
    assert outcome.status == 1 and "RESOURCE_REQUIREMENTS_UPDATED" in outcome.err
    assert "took its place" not in outcome.err, "which one did is not among the newest"


def test_what_others_did_before_and_after_is_not_the_outcome(slotwise: Run, fake: Any) -> None:
    failed = {"terminalState": "FAILED", "terminatedReason": "EXCEPTION_OCCURRED"}
    assert wait(slotwise, fake, [record(3, **failed), record(2), record(1, **failed)]).status == 0


def test_a_server_that_does_not_name_the_rescale_any_more(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"2"'}))
    looks(fake, [open_record(2)], [record(3), record(2), record(1)])
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained()))
    outcome = slotwise("require", "delays", "delays=:4", "--wait", "--json")
    assert (outcome.status, outcome.json["rescale"]["number"]) == (0, 2)
    looks(fake, [])
    assert "is not kept any more" in slotwise("require", "delays", "delays=:4", "--wait").err


def test_waiting_goes_on_with_the_record_of_a_failover(slotwise: Run, fake: Any) -> None:
    broken = record(
        2, terminalState="IGNORED", terminatedReason="JOB_FAILOVER_RESTARTING", message="the driver died"
    )
    outcome = wait(slotwise, fake, [broken, record(1)], [record(3), broken, record(1)])
    assert outcome.status == 0
    assert outcome.err == "Waiting on: record 2 ended by a failover (the driver died)\n"


def test_a_rescale_that_is_taken_back_is_waited_for_until_the_job_runs_again(
    slotwise: Run, fake: Any
) -> None:
    failed = record(
        2, terminalState="FAILED", terminatedReason="EXCEPTION_OCCURRED", message="Taken back: boom"
    )
    going, done = {**open_record(3), "rollbackOf": 2}, record(3, rollbackOf=2)
    fake.on("PUT", REQUIREMENTS, ACCEPTED)
    histories = ([going, failed, record(1)], [done, failed, record(1)])
    looks(fake, *histories)
    vertex = delays(2)
    said = explained(vertices={"a": vertex}, rollback={"rescale": 2, "reason": "boom"})
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, said))
    outcome = slotwise("require", "delays", "delays=:4", "--wait")
    assert outcome.status == 3
    assert "The rescale was taken back: boom" in outcome.err
    assert "slotwise require delays delays=:4 --retry" in outcome.err
    assert len(fake.sent("GET", HISTORY)) == 2, "the way back was waited for"


def test_a_retry_is_asked_for_as_one(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, (200, {}, {"ETag": '"2"'}))
    assert slotwise("require", "delays", "delays=:4", "--retry").status == 0
    assert fake.sent("PUT", REQUIREMENTS)[0].query == {"retry": "true"}


def test_the_record_of_a_way_back_names_the_other(slotwise: Run, fake: Any) -> None:
    fake.on("GET", f"/jobs/{JOB_ID}/rescales/details/{3:032x}", (200, record(3, rollbackOf=2)))
    assert "takes back: record 2" in slotwise("rescales", "delays", "--record", f"{3:032x}").out


@pytest.mark.parametrize(
    ("own", "successor", "told"),
    [
        (None, {}, "RESOURCE_REQUIREMENTS_UPDATED: Record 3 took its place (bounds were declared)"),
        (
            "Others wait.",
            {"causeInWords": "a floor or ceiling was set", "message": "Why."},
            "RESOURCE_REQUIREMENTS_UPDATED: Others wait. Record 3 took its place (a floor or ceiling was set: Why.)",
        ),
        (
            None,
            {"triggerCause": "UPDATE_REQUIREMENT", "message": "Version 2 of the job."},
            "RESOURCE_REQUIREMENTS_UPDATED: Record 3 took its place (Version 2 of the job.)",
        ),
    ],
)
def test_a_change_that_was_overtaken_ends_with_1_and_names_the_other(
    slotwise: Run, fake: Any, own: str | None, successor: dict[str, Any], told: str
) -> None:
    late = record(2, terminalState="IGNORED", terminatedReason="RESOURCE_REQUIREMENTS_UPDATED", message=own)
    outcome = wait(slotwise, fake, [{**open_record(3), **successor}, late, record(1)])
    assert outcome.status == 1
    assert f"The rescale did not succeed: {told}\n" in outcome.err


def test_waiting_ends_with_the_job(slotwise: Run, fake: Any) -> None:
    fake.on("PUT", REQUIREMENTS, ACCEPTED)
    looks(fake, [])
    ended = (200, explained(status="CANCELED"))
    fake.on("GET", f"/jobs/{JOB_ID}/explanation", (200, explained(schedulerState="Created")), ended)
    outcome = slotwise("require", "delays", "delays=:4", "--wait")
    assert (outcome.status, outcome.out) == (0, "Accepted as version 2. No rescale followed from it.\n")
