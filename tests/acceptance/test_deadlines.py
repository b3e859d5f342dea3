"""Bounds with a deadline, and a floor and a ceiling, on real Spark: one server and one job, whose sink stays exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.deployment import OK, SLOTS, Deployment, counting_in_place, deployed, wait_for

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

AT, MOST = 2, 2 * SLOTS
BOUNDS = (1, AT)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("deadlines")) as made:
        made.start(with_points=False)
        made.submit(counting_in_place(made.directory, AT, MOST))
        made.await_settled()
        yield made


def put(deployment: Deployment, upper: int, **headers: str) -> int:
    """Bounds up to ``upper`` for every vertex; the version that they are."""
    body = {name: {"parallelism": {"lowerBound": 1, "upperBound": upper}} for name in names(deployment)}
    path = f"/jobs/{deployment.job_id}/resource-requirements"
    answer = deployment.call("PUT", path, json=body, headers=headers)
    assert answer.status_code == OK, answer.text
    return int(answer.headers["ETag"].strip('"'))


def names(deployment: Deployment) -> list[str]:
    return list(deployment.parallelism())


def policy(deployment: Deployment, method: str, **limits: int) -> None:
    path = f"/jobs/{deployment.job_id}/scaling-policy"
    answer = deployment.call(method, path, **({"json": {"allVertices": limits}} if limits else {}))
    assert answer.status_code == OK, answer.text


def runs_at(deployment: Deployment, parallelism: int) -> None:
    def there() -> bool:
        ended = all(one["terminalState"] for one in deployment.history())
        return ended and set(deployment.parallelism().values()) == {parallelism}

    wait_for(f"every vertex runs at {parallelism}, and no rescale is open", there)
    deployment.await_progress()


def test_bounds_are_dropped_at_the_deadline_and_nothing_was_taken_before(
    deployment: Deployment,
) -> None:
    version = put(deployment, MOST, **{"X-Slotwise-Deadline": "4 s", "X-Slotwise-On-Timeout": "ROLLBACK"})
    held = dict.fromkeys(names(deployment), BOUNDS)
    assert deployment.requirements() == (version, held)
    seen = []

    def dropped() -> bool:
        seen.append(deployment.parallelism())
        return deployment.requirements() == (version + 1, held)

    wait_for("the new bounds are dropped", dropped)
    assert all(set(one.values()) == {AT} for one in seen), "some of the slots were taken"
    way_back, ended = deployment.history()[:2]
    assert (ended["terminatedReason"], way_back["rollbackOf"]) == (
        "RESOURCE_REQUIREMENTS_UPDATED",
        ended["number"],
    )
    assert f"{MOST} are wanted, and {SLOTS} can be used" in ended["message"]
    runs_at(deployment, AT)


def test_bounds_whose_slots_are_there_stay_behind_their_deadline(deployment: Deployment) -> None:
    version = put(deployment, SLOTS, **{"X-Slotwise-Deadline": "30 s"})
    runs_at(deployment, SLOTS)
    explained: dict[str, Any] = deployment.get(f"/jobs/{deployment.job_id}/explanation")
    # They are applied when the slots have come, which is another version, or at once, if they are still held.
    assert explained["queued"] == [] and deployment.requirements()[0] in (version, version + 1)
    put(deployment, AT)
    runs_at(deployment, AT)


def test_a_ceiling_and_a_floor_win_over_the_bounds_that_stay_declared(deployment: Deployment) -> None:
    before = deployment.requirements()
    policy(deployment, "PUT", ceiling=1)
    runs_at(deployment, 1)
    policy(deployment, "PUT", floor=3)
    runs_at(deployment, 3)
    assert deployment.requirements() == before
    policy(deployment, "DELETE")
    runs_at(deployment, AT)
    assert {one["triggerCause"] for one in deployment.history()[:3]} == {"UPDATE_POLICY"}
