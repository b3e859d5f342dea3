"""Three jobs on eight slots of a real server, through twenty arrivals, departures and PUTs: whenever everything is at
rest, each has what the brute-force checker says, and nobody was restarted for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.acceptance.deployment import Deployment, deployed, wait_for
from tests.numbers import unending
from tests.slot_rules import Asks, at_rest, division

pytestmark = pytest.mark.timeout(900)

TOTAL = 8
STEP_WITHIN_S = 180.0
AT_REST = ("full", "capped", "share", "no-room", "after-others")
_PREFIX = "jobmanager.adaptive-scheduler."

Step = Callable[["Script"], None]


@pytest.fixture
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("script")
    options: dict[str, Any] = {"slots": TOTAL, "settings": {"slot_holding_ms": "0"}}
    with deployed(directory, warm_drivers=1, **options) as made:
        made.start(with_points=False)
        yield made


def graph(asks: Asks) -> dict[str, Any]:
    """Some numbers, thrown away: all of it changes in place, and none of it costs much."""
    vertices: list[dict[str, Any]] = [
        {"name": "numbers", "source": unending(20)},
        {"name": "store", "inputs": ["numbers"], "sink": {"format": "noop"}},
    ]
    for vertex in vertices:
        vertex |= {"parallelism": asks.upper, "lowerBound": asks.lower, "maxParallelism": TOTAL}
    config = {
        "slotwise.batch.interval": "100 ms",
        "slot.idle.timeout": "0 ms",
        _PREFIX + "submission.resource-stabilization-timeout": "0 ms",
        "slotwise.slots.weight": str(asks.weight),
        "slotwise.slots.priority": str(asks.priority),
        "slotwise.slots.cap": "none" if asks.cap is None else str(asks.cap),
    }
    return {"name": asks.name, "type": "STREAMING", "config": config, "vertices": vertices}


class Script:
    """The jobs that are there, in the order in which they came, and what each of them asks for."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.asked: list[Asks] = []
        self.ids: dict[str, str] = {}

    def come(self, asks: Asks) -> None:
        answer = self.deployment.call("POST", "/jobs", json=graph(asks))
        assert answer.is_success, answer.text
        self.ids[asks.name] = answer.json()["jobid"]
        self.asked.append(asks)

    def go(self, name: str) -> None:
        answer = self.deployment.call("PATCH", f"/jobs/{self.ids[name]}?mode=cancel")
        assert answer.is_success, answer.text
        self.asked = [one for one in self.asked if one.name != name]

    def bounds(self, name: str, lower: int, upper: int) -> None:
        bounds = {"parallelism": {"lowerBound": lower, "upperBound": upper}}
        self._put(name, "resource-requirements", {"numbers": bounds, "store": bounds})
        self._change(name, lower=lower, upper=upper)

    def share(self, name: str, weight: int, priority: int = 0, cap: int | None = None) -> None:
        document = {"weight": weight, "priority": priority, "cap": cap}
        self._put(name, "slot-share", document)
        self._change(name, **document)

    def _put(self, name: str, what: str, document: Any) -> None:
        answer = self.deployment.call("PUT", f"/jobs/{self.ids[name]}/{what}", json=document)
        assert answer.is_success, answer.text

    def _change(self, name: str, **changes: Any) -> None:
        self.asked = [replace(one, **changes) if one.name == name else one for one in self.asked]

    def explained(self) -> dict[str, Any]:
        return {
            one.name: self.deployment.get(f"/jobs/{self.ids[one.name]}/explanation") for one in self.asked
        }

    def settle(self) -> dict[str, int]:
        """What each job runs with when everything is at rest; it is what the rules say, or this fails."""
        expected = division(self.asked, TOTAL)

        def there() -> bool:
            told = self.explained()
            slots = {name: one["slots"] for name, one in told.items()}
            # Each was read at another moment, so together they may seem to hold too many; one never does.
            assert all(one["used"] <= one["held"] <= TOTAL for one in slots.values()), slots
            return (
                {name: one["used"] for name, one in slots.items()} == expected
                and {name: one["held"] for name, one in slots.items()} == expected
                and all(one["slotShare"]["why"] in AT_REST for one in told.values())
            )

        try:
            wait_for(f"the jobs run with {expected}", there, STEP_WITHIN_S)
        except AssertionError as error:
            told = {name: (one["slots"], one["sentences"]) for name, one in self.explained().items()}
            raise AssertionError(f"{error}\n{told}\n{self.deployment.log_end()}") from None
        self.asked = at_rest(self.asked, TOTAL)
        return expected


SCRIPT: tuple[Step, ...] = (
    lambda script: script.come(Asks("one", 1, 8)),
    lambda script: script.come(Asks("two", 2, 6, weight=2)),
    lambda script: script.share("one", 3),
    lambda script: script.come(Asks("three", 1, 4, weight=2, priority=1)),
    lambda script: script.bounds("two", 1, 3),
    lambda script: script.share("three", 8, 1, cap=3),
    lambda script: script.bounds("one", 4, 8),
    lambda script: script.share("two", 9, -1),
    lambda script: script.go("three"),
    # It does not fit beside the lower bounds of the others, until one of them has lower ones.
    lambda script: script.come(Asks("three", 4, 8, priority=2)),
    lambda script: script.bounds("one", 1, 6),
    lambda script: script.share("two", 1),
    lambda script: script.share("one", 8, cap=1),
    lambda script: script.bounds("two", 1, 8),
    lambda script: script.share("one", 8),
    lambda script: script.go("two"),
    lambda script: script.bounds("three", 2, 3),
    lambda script: script.come(Asks("two", 3, 5, priority=5)),
    lambda script: script.share("three", 1, 3, cap=2),
    lambda script: script.go("one"),
)


@pytest.mark.long
def test_twenty_steps_of_three_jobs_end_where_the_checker_says(deployment: Deployment) -> None:
    script, found = Script(deployment), []
    assert len(SCRIPT) == 20
    for step in SCRIPT:
        step(script)
        found.append(script.settle())
    assert found[9]["three"] == 0 and found[10]["three"] >= 4, "one that waits, and then does not any more"
    assert {one["one"] for one in found[:-1]} >= {8, 1, 3, 6}
    for name, job_id in script.ids.items():
        job = deployment.get(f"/jobs/{job_id}")
        assert (job["attempt"], job["state"]) == (1, "CANCELED" if name == "one" else "RUNNING"), name
    gave = deployment.get(f"/jobs/{script.ids['one']}/rescales/history?limit=500")
    messages = [one["message"] or "" for one in gave]
    assert any("for other jobs. Another job is below its lower bounds" in one for one in messages), messages
    assert any("for other jobs. Shares are evened out" in one for one in messages), messages
    assert any("given back. Its cap is 1 slot(s)." in one for one in messages), messages
    assert {one["rung"] for one in gave if one["triggerCause"] == "NEW_RESOURCE_AVAILABLE"} == {"in-place"}
