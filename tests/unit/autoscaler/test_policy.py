"""How a policy is read, and when its schedule holds."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.autoscaler.policy import Period, Policy, Range
from app.cli.autoscale_policy import read_policy
from app.model.grapherrors import GraphErrors

WHOLE: dict[str, Any] = {
    "targetUtilization": 0.6,
    "maxUtilization": 0.8,
    "catchUp": "2 min",
    "scaleDownWindow": "30 min",
    "stabilization": "90 s",
    "window": 45_000,
    "batchDuration": "5 s",
    "interval": "15 s",
    "parallelism": {"min": 2, "max": 12},
    "vertices": {"store": {"max": 3}},
    "timeZone": "Europe/Berlin",
    "schedule": [
        {"days": ["mon", "fri"], "from": "08:00", "to": "18:30", "min": 6},
        {"from": "22:00", "to": "06:00", "max": 4},
        {"from": "12:00", "to": "12:15", "pause": True},
    ],
    "recommendOnly": True,
}


def test_every_field_is_read() -> None:
    found = read_policy(WHOLE)
    assert found == Policy(
        target_utilization=0.6,
        max_utilization=0.8,
        catch_up_ms=120_000,
        scale_down_window_ms=1_800_000,
        stabilization_ms=90_000,
        window_ms=45_000,
        batch_ms=5_000,
        interval_ms=15_000,
        parallelism=Range(2, 12),
        vertices={"store": Range(None, 3)},
        time_zone=ZoneInfo("Europe/Berlin"),
        schedule=(
            Period(480, 1110, frozenset({0, 4}), min=6),
            Period(1320, 360, max=4),
            Period(720, 735, pause=True),
        ),
        recommend_only=True,
    )
    assert all(getattr(found, each.name) != getattr(Policy(), each.name) for each in fields(Policy))
    assert read_policy({}) == Policy()


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ([], "The policy should be a mapping with targetUtilization, "),
        (
            {"catchup": "1 s"},
            "catchup: is not a field of a policy. Did you mean 'catchUp'? Allowed are targetUtilization,",
        ),
        (
            {"targetUtilization": 1.5},
            "targetUtilization: should be a number from 0.05 to 1, found the number 1.5.",
        ),
        ({"targetUtilization": True}, "targetUtilization: should be a number from 0.05 to 1, found true."),
        (
            {"targetUtilization": float("nan")},
            "targetUtilization: should be a number from 0.05 to 1, found",
        ),
        ({"catchUp": "soon"}, "catchUp: a duration such as '500 ms'"),
        ({"catchUp": "8 d"}, "catchUp: from 1 s to 168 h are allowed, found 192 h."),
        ({"catchUp": "-1 s"}, "catchUp: from 1 s to 168 h are allowed, found -1000 ms."),
        ({"window": "6 min"}, "window: from 5 s to 5 min are allowed, found 6 min."),
        (
            {"schedule": [{"from": "08:00", "to": "08:00"}]},
            "schedule[0]: should begin before 24:00, and not",
        ),
        (
            {"schedule": [{"from": "24:00", "to": "08:00"}]},
            "schedule[0]: should begin before 24:00, and not",
        ),
        (
            {"parallelism": {"min": 4}, "schedule": [{"from": "08:00", "to": "09:00", "max": 3}]},
            "min of period 1 of schedule should be at most max, found 4 and 3.",
        ),
        ({"parallelism": 3}, "parallelism: should be a mapping with min, max, found the number 3."),
        (
            {"parallelism": {"min": 0}},
            "parallelism.min: should be a whole number between 1 and 32768, found the number 0.",
        ),
        ({"parallelism": {"most": 3}}, "parallelism.most: is not a field of a range."),
        (
            {"vertices": {"store": {"max": "3"}}},
            "vertices.store.max: should be a whole number between 1 and 32768",
        ),
        ({"vertices": ["store"]}, "vertices: should be a mapping of vertex names, found a list."),
        (
            {"timeZone": "Mars/Olympus"},
            "timeZone: should be the name of a time zone such as Europe/Berlin, found",
        ),
        (
            {"timeZone": "../../etc/passwd"},
            "timeZone: should be the name of a time zone such as Europe/Berlin, found",
        ),
        ({"timeZone": 1}, "timeZone: should be the name of a time zone such as Europe/Berlin, found"),
        ({"schedule": {}}, "schedule: should be a list of periods, found a mapping."),
        ({"schedule": [{"from": "08:00"}]}, "schedule[0].to: is missing: a time of the day"),
        ({"schedule": [{}]}, "schedule[0].from: is missing: a time of the day"),
        (
            {"schedule": ["night"]},
            "schedule[0]: should be a mapping with days, from, to, pause, min, max, found",
        ),
        (
            {"schedule": [{"from": "8:00", "to": "24:01"}]},
            'schedule[0].from: should be a time of the day such as "08:30", up to "24:00", found',
        ),
        (
            {"schedule": [{"days": ["monday"], "from": "08:00", "to": "09:00"}]},
            "schedule[0].days: should be a list of mon, tue, wed, thu, fri, sat, sun, found",
        ),
        ({"recommendOnly": "yes"}, "recommendOnly: should be true or false, found the text 'yes'."),
        ({"targetUtilization": 0.9}, "targetUtilization should be below maxUtilization, found 0.9 and 0.85"),
        ({"parallelism": {"min": 3, "max": 2}}, "min of parallelism should be at most max, found 3 and 2."),
        (
            {"parallelism": {"max": 2}, "schedule": [{"from": "08:00", "to": "09:00", "min": 3}]},
            "min of period 1 of schedule should be at most max, found 3 and 2.",
        ),
    ],
)
def test_what_is_wrong_is_said(document: object, sentence: str) -> None:
    with pytest.raises(GraphErrors) as refused:
        read_policy(document)
    assert any(each.startswith(sentence) for each in refused.value.errors), refused.value.errors


def test_all_errors_are_told_at_once() -> None:
    with pytest.raises(GraphErrors) as refused:
        read_policy({"catchUp": "soon", "more": 1, "parallelism": {"min": "x", "max": None}})
    assert len(refused.value.errors) == 4


def period_at(policy: Policy, *when: int, zone: str = "UTC") -> Period | None:
    at = datetime(*when, tzinfo=ZoneInfo(zone))  # type: ignore[misc, arg-type]
    return policy.period(int(at.timestamp() * 1000))


def test_a_period_holds_by_the_clock_of_its_zone() -> None:
    policy = Policy(time_zone=ZoneInfo("Europe/Berlin"), schedule=(Period(480, 1080),))
    # 08:00 in Berlin is 07:00 UTC in winter, and 06:00 in summer.
    assert period_at(policy, 2026, 1, 15, 6, 59) is None
    assert period_at(policy, 2026, 1, 15, 7, 0) is not None
    assert period_at(policy, 2026, 7, 15, 6, 0) is not None
    assert period_at(policy, 2026, 7, 15, 16, 0) is None


def test_a_period_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    policy = Policy(time_zone=UTC, schedule=(Period(22 * 60, 6 * 60, frozenset({4})),))
    # The 2nd of January 2026 is a Friday.
    held = [
        period_at(policy, 2026, 1, day, hour) is not None for day in (2, 3) for hour in (0, 5, 6, 21, 22, 23)
    ]
    assert held == [False, False, False, False, True, True, True, True, False, False, False, False]


def test_of_several_periods_the_last_one_counts() -> None:
    policy = Policy(time_zone=UTC, schedule=(Period(0, 1440, min=2), Period(600, 720, min=8)))
    assert [period_at(policy, 2026, 1, 2, hour).min for hour in (9, 10, 11, 12)] == [2, 8, 8, 2]  # type: ignore[union-attr]
