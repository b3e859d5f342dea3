"""Pods that have a node and do not start there: what the API says of them, and what follows for the slots."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from app.cluster.kubernetes.namespace import RETRY_S, Pod, Room, let_in, read_pods, reopened
from tests.kubernetes.replay import STATUS, recorded
from tests.unit.cluster.test_kubernetes_namespace import ONE, PATIENCE_S, World, pod, pods, quota

IMAGE = "registry.example/slotwise:1"
BACK_OFF = f'the image {IMAGE} cannot be pulled (ImagePullBackOff: Back-off pulling image "{IMAGE}")'


def in_stage(stage: str, **changes: Any) -> Pod:
    """The first pod of the recording, in a stage."""
    made = copy.deepcopy(recorded("pods")["items"][0])
    made["status"] = {**copy.deepcopy(STATUS[stage]), **changes}
    (found,) = read_pods({"kind": "PodList", "items": [made]})
    return found


def refused(number: int, why: str = BACK_OFF) -> Pod:
    return replace(pod(number, phase="Pending"), refused=why)


# ---- reading


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("image-pull-backoff", BACK_OFF),
        (
            "err-image-pull",
            f"the image {IMAGE} cannot be pulled (ErrImagePull: rpc error: code = NotFound desc = ",
        ),
        (
            "config-error",
            f'no container can be made of the image {IMAGE} (CreateContainerConfigError: secret "credentials" not',
        ),
    ],
)
def test_why_a_pod_does_not_start_is_read_with_its_image(stage: str, words: str) -> None:
    found = in_stage(stage)
    assert found.placed and not found.started
    assert (found.refused or "").startswith(words) and found.hindered == found.refused


@pytest.mark.parametrize("stage", ["pending", "scheduled", "running", "succeeded", "failed", "unschedulable"])
def test_what_comes_by_itself_or_is_over_is_not_refused(stage: str) -> None:
    found = in_stage(stage)
    assert found.refused is None
    assert found.started is (stage in ("running", "succeeded", "failed"))


def test_a_container_that_is_to_run_first_counts_too() -> None:
    first = STATUS["image-pull-backoff"]["containerStatuses"]
    assert in_stage("pending", initContainerStatuses=first).refused == BACK_OFF


def test_neither_credentials_nor_pages_of_words_are_passed_on() -> None:
    entry = copy.deepcopy(STATUS["err-image-pull"]["containerStatuses"][0])
    entry["state"]["waiting"]["message"] = (
        f"pulling https://me:hunter2@registry.example/x: {'denied ' * 1000}"
    )
    words = in_stage("err-image-pull", containerStatuses=[entry]).refused or ""
    assert "hunter2" not in words and "https://me:******@registry.example" in words and len(words) < 600


# ---- what follows


def test_a_pod_that_is_refused_is_not_placed_and_jobs_settle_for_less() -> None:
    world = World()
    seen = [*pods(2), refused(10), refused(11)]
    assert world.look(seen) == Room(10, 0)
    assert world.look(seen, after_s=PATIENCE_S) == Room(2, 0, f"pods do not start: {BACK_OFF}")
    # They are taken back, and what was said stays.
    assert world.look(pods(2)) == Room(2, 0, f"pods do not start: {BACK_OFF}")


def test_where_no_pod_starts_there_is_no_slot() -> None:
    world = World()
    world.look([refused(1), refused(2)])
    assert world.look([refused(1), refused(2)], after_s=PATIENCE_S).slots == 0


def test_a_kubelet_that_tries_again_does_not_begin_the_while_anew() -> None:
    """It says ErrImagePull, ImagePullBackOff, and nothing in between."""
    world = World()
    between = pod(1, phase="Pending")
    world.look([between], after_s=PATIENCE_S)
    for number in range(int(PATIENCE_S / 5)):
        seen = [refused(1), refused(1, "ErrImagePull"), between][number % 3]
        assert world.look([seen], after_s=5).slots == 10
    assert world.look([between], after_s=5).slots == 0


def test_one_that_starts_after_all_is_placed() -> None:
    world = World()
    world.look([refused(1)])
    started = replace(pod(1), started=True)
    assert world.look([started], after_s=PATIENCE_S).slots == 10
    assert world.look([started], after_s=PATIENCE_S).slots == 10


def test_what_is_said_changes_only_with_the_pod_that_says_it() -> None:
    """A kubelet changes its words every few seconds; each would be news to every job."""
    world = World()
    world.look([refused(1)])
    first = world.look([refused(1)], after_s=PATIENCE_S).why
    assert world.look([refused(1, "other words")]).why == first
    probe = pod(90, waits=True)
    room = world.look([], probe=probe)
    assert room.why == "no node has room for more: 0/3 nodes are available"
    assert world.look([], probe=replace(probe, unschedulable="0/4 nodes")).why == room.why
    later = replace(probe, uid="uid-91", unschedulable="0/4 nodes")
    assert world.look([], probe=later).why == "no node has room for more: 0/4 nodes"


# ---- the server's own pod, and jobs that wait


def test_a_pod_that_asks_takes_what_an_executor_may_have() -> None:
    world, probe = World(), pod(90)
    made = replace(quota(pods=4), used={"pods": 1})  # type: ignore[dict-item]
    assert let_in([made], [probe], ONE) == 4
    assert world.look([], [made], probe=probe).withheld == 6
    # It neither waits for a node as an executor's does, nor has one.
    waits = pod(91, waits=True)
    for _ in range(3):
        assert world.look([], probe=waits, after_s=PATIENCE_S).slots == 10


def test_where_some_have_room_a_job_that_waits_is_tried_every_five_minutes() -> None:
    """A job that waits is given up after some fifty minutes: what is tried each hour is tried too late."""
    world = World()
    tries = []
    for number in range(6):
        seen = pods(3, 1, first=10 * number)
        world.look(seen)
        assert world.look(seen, after_s=PATIENCE_S).slots == 3
        began = world.now_s
        while world.look(pods(3), is_waited_for=True).slots == 3:
            pass
        tries.append(world.now_s - began)
    assert tries == pytest.approx([RETRY_S] * 6, abs=2.1)


def test_what_a_probe_has_shown_is_believed_at_once() -> None:
    world = World()
    world.look(pods(0, 2))
    assert world.look(pods(0, 2), after_s=PATIENCE_S).slots == 0
    world.learnt = reopened(world.learnt)
    # Those that wait have another while.
    assert world.look(pods(0, 2)).slots == 10
    assert world.look(pods(0, 2), after_s=PATIENCE_S - 3).slots == 10
    assert world.look(pods(0, 2), after_s=3).slots == 0
