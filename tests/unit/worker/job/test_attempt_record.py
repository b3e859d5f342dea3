"""What is kept of what a driver says of itself."""

from __future__ import annotations

import pytest

from app.cluster.ports import DriverRef
from app.model.protocol import Registration
from app.worker.job.attempt_record import AttemptRecord

RECORD = AttemptRecord(1, 1, DriverRef("driver-1", 4711, 1.0, "driver-1.lock"), "hash", 1)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("http://127.0.0.1:4040", "http://127.0.0.1:4040"),
        ("", None),
        ("http://127.0.0.1:4040/?x=1", None),
        ("http://127.0.0.1:4040\n", None),
        ("http://127.0.0.1:4040@example.com", None),
        ("https://example.com", None),
        ("javascript:alert(1)", None),
    ],
)
def test_a_link_is_one_to_the_page_of_spark(told: str, kept: str | None) -> None:
    registration = Registration(4711, 1.0, "build", "4.3.0", "app-1", ui_url=told)
    assert RECORD.described(registration).ui_url == kept


def test_texts_have_a_largest_size() -> None:
    described = RECORD.described(Registration(4711, 1.0, "h" * 9_999, "4" * 9_999, "app-1"))
    assert (described.host, described.spark_version) == ("h" * 255, "4" * 64)
