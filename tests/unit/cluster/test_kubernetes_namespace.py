"""What the API of Kubernetes says of a namespace, and what follows for the slots."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cluster.kubernetes.namespace import (
    LONGEST_RETRY_S,
    RETRY_S,
    Demand,
    Experience,
    NotFromTheApi,
    Pod,
    Quota,
    Room,
    let_in,
    read_pods,
    read_quotas,
    settle,
)
from tests.kubernetes.replay import recorded

JOB = "0123456789abcdef0123456789abcdef"
ONE = Demand(Fraction(1), 1 << 30)
PATIENCE_S = 60.0


def pod(number: int, *, waits: bool = False, phase: str = "Running", ending: bool = False) -> Pod:
    why = "0/3 nodes are available" if waits else None
    phase = "Pending" if waits else phase
    return Pod(f"uid-{number}", f"pod-{number}", JOB, "1", phase, not waits, why, ending)


def pods(placed: int, waiting: int = 0, first: int = 0) -> list[Pod]:
    return [pod(number, waits=number >= first + placed) for number in range(first, first + placed + waiting)]


def quota(**hard: int) -> Quota:
    names = {name.replace("_", "."): Fraction(most) for name, most in hard.items()}
    return Quota("q", names, {})


class World:
    """Looks at a namespace, one after another."""

    def __init__(self, declared: int = 10) -> None:
        self.declared = declared
        self.learnt = Experience()
        self.now_s = 1000.0

    def look(
        self, seen: Sequence[Pod] = (), quotas: Sequence[Quota] = (), after_s: float = 2.0, **more: Any
    ) -> Room:
        self.now_s += after_s
        room, self.learnt = settle(
            seen,
            quotas,
            self.learnt,
            declared=self.declared,
            demand=ONE,
            patience_s=PATIENCE_S,
            now_s=self.now_s,
            **more,
        )
        return room


# ---- reading


def test_pods_of_jobs_are_read_from_a_list_in_every_stage() -> None:
    found = {
        one.name.rpartition("-exec-")[2]: one for one in read_pods(recorded("pods")) if one.job_id == JOB
    }
    assert {number: one.phase for number, one in found.items()} == {
        "1": "Running",
        "2": "Pending",
        "3": "Pending",
        "4": "Succeeded",
        "5": "Failed",
        "6": "Running",
    }
    assert [number for number, one in found.items() if one.is_over] == ["4", "5"]
    assert [number for number, one in found.items() if one.ending] == ["6"]
    assert [number for number, one in found.items() if not one.placed] == ["3"]
    assert (found["3"].unschedulable or "").startswith("0/3 nodes are available: 3 Insufficient cpu.")
    assert [number for number, one in found.items() if one.unschedulable is not None] == ["3"]
    assert {one.attempt for one in found.values()} == {"3"}
    # A pod without the label is nobody's of ours; one that the scheduler has not seen yet does not wait for a node.
    assert len(read_pods(recorded("pods"))) == len(found) + 1
    assert read_pods({"kind": "PodList", "items": None}) == ()


def test_quotas_that_do_not_count_executors_are_left_out() -> None:
    found = read_quotas(recorded("resource-quotas"))
    assert [one.name for one in found] == ["executors", "long-running"]
    assert found[0].hard["requests.memory"] == 12 * 1024**3
    assert found[0].used["requests.cpu"] == Fraction(5, 2)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"kind": "Status", "items": []},
        {"kind": "PodList"},
        {"kind": "PodList", "items": [{}]},
        {"kind": "PodList", "items": [{"metadata": {"labels": {"slotwise/job": "x"}}}]},
    ],
)
def test_another_document_is_refused(document: Any) -> None:
    with pytest.raises(NotFromTheApi):
        read_pods(document)


def test_a_quota_with_a_strange_number_is_refused() -> None:
    item = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "many"}}}
    with pytest.raises(NotFromTheApi, match="'many' is not a quantity"):
        read_quotas({"kind": "ResourceQuotaList", "items": [item]})


# ---- quotas


@pytest.mark.parametrize(
    ("hard", "used", "fit"),
    [
        ({"pods": 5}, {}, 5),
        ({"count/pods": 5}, {"count/pods": 2}, 3),
        ({"requests.cpu": 5}, {"requests.cpu": 1}, 4),
        ({"cpu": 5, "pods": 2}, {}, 2),
        ({"limits.memory": 3 << 30}, {"limits.memory": 1}, 2),
        ({"limits.cpu": 1, "services": 0}, {}, None),
        ({"pods": 2}, {"pods": 9}, 0),
    ],
)
def test_what_a_quota_lets_in(hard: dict[str, int], used: dict[str, int], fit: int | None) -> None:
    made = Quota("q", {k: Fraction(v) for k, v in hard.items()}, {k: Fraction(v) for k, v in used.items()})
    assert let_in([made], [], ONE) == fit


def test_our_own_pods_do_not_count_against_us_and_those_that_are_over_do_not_at_all() -> None:
    made = Quota("q", {"pods": Fraction(6)}, {"pods": Fraction(4)})
    ours = [pod(1), pod(2, waits=True), pod(3, phase="Succeeded")]
    assert let_in([made], ours, ONE) == 4


def test_of_the_recorded_quotas_the_tightest_decides() -> None:
    # 8 cores less 2.5 of others; with one of our pods among them it is 6.5.
    assert let_in(read_quotas(recorded("resource-quotas")), [], ONE) == 5
    assert let_in(read_quotas(recorded("resource-quotas")), [pod(1)], ONE) == 6


def test_a_smaller_quota_withholds_at_once_and_takes_away_after_a_while() -> None:
    world = World()
    assert world.look(quotas=[quota(pods=10)]) == Room(10, 0)
    first = world.look(quotas=[quota(pods=6)])
    assert (first.slots, first.withheld) == (10, 4)
    assert "ResourceQuota" in first.why
    assert world.look(quotas=[quota(pods=4)], after_s=30).slots == 10
    # The most that there was meanwhile: the quota's count lags behind.
    later = world.look(quotas=[quota(pods=5)], after_s=31)
    assert (later.slots, later.withheld) == (6, 1)
    assert world.look(quotas=[quota(pods=8)]).slots == 8


def test_a_quota_that_was_short_for_a_moment_takes_nothing_away() -> None:
    world = World()
    world.look()
    assert world.look(quotas=[quota(pods=1)]).withheld == 9
    assert world.look(quotas=[quota(pods=10)], after_s=59) == Room(10, 0)
    assert world.look(quotas=[quota(pods=1)], after_s=2).slots == 10


# ---- nodes


def test_pods_without_a_node_are_waited_for_and_then_jobs_settle_for_less() -> None:
    world = World()
    assert world.look(pods(3, 2)).slots == 10
    assert world.look(pods(3, 2), after_s=59).slots == 10
    room = world.look(pods(3, 2), after_s=1)
    assert (room.slots, room.withheld) == (3, 0)
    assert room.why == "no node has room for more: 0/3 nodes are available"
    # They are given up, and the number stays: nothing waits any more, but nothing says that there is room.
    assert world.look(pods(3)).slots == 3
    # A job that gives one of its own back leaves its place to others.
    assert world.look(pods(2)).slots == 3


def test_each_pod_has_its_own_while() -> None:
    world = World()
    world.look(pods(3, 1))
    # Another one each minute, that finds its node before its time is over.
    for number in range(10, 15):
        assert world.look([*pods(3), pod(number, waits=True)], after_s=59).slots == 10


def test_what_was_in_vain_is_tried_again_each_time_later() -> None:
    world = World()
    waits: list[float] = []
    for attempt in range(6):
        seen = pods(3, 1, first=10 * attempt)
        world.look(seen)
        assert world.look(seen, after_s=PATIENCE_S).slots == 3
        began = world.now_s
        while world.look(pods(3)).slots == 3:
            pass
        waits.append(world.now_s - began)
    doubled = [min(LONGEST_RETRY_S, RETRY_S * 2**n) for n in range(6)]
    assert waits == pytest.approx(doubled, abs=2.1)
    # It has worked: the next time is as the first.
    seen = pods(5, 1, first=100)
    world.look(seen)
    assert world.look(seen, after_s=PATIENCE_S).slots == 5
    assert world.look(pods(5), after_s=RETRY_S).slots == 10


def test_a_node_that_is_lost_while_fewer_are_offered_lowers_the_number_again() -> None:
    world = World()
    seen = pods(4, 1)
    world.look(seen)
    assert world.look(seen, after_s=PATIENCE_S).slots == 4
    fewer = [*pods(2), pod(20, waits=True), pod(21, waits=True)]
    assert world.look(fewer).slots == 4
    assert world.look(fewer, after_s=PATIENCE_S).slots == 2


def test_pods_that_end_neither_wait_nor_have_a_place() -> None:
    world = World()
    seen = [pod(1), pod(2, ending=True), pod(3, phase="Failed"), pod(4, waits=True)]
    world.look(seen)
    assert world.look(seen, after_s=PATIENCE_S).slots == 1


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 4), st.none() | st.integers(0, 20), st.floats(0, 400)),
        max_size=30,
    )
)
def test_whatever_is_seen_there_are_never_more_slots_than_declared_nor_more_withheld_than_there_are(
    looks: list[tuple[int, int, int | None, float]],
) -> None:
    world = World(8)
    for placed, waiting, most, after_s in looks:
        seen = pods(placed, waiting)
        quotas = [] if most is None else [quota(pods=most)]
        room = world.look(seen, quotas, after_s)
        assert 0 <= room.withheld <= room.slots <= 8
        fit = let_in(quotas, seen, ONE)
        assert fit is None or room.slots - room.withheld <= fit
        assert bool(room.why) == (room.slots - room.withheld < 8)
