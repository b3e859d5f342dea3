"""Two texts that name one place have one plain form. That it is Hadoop's, tests with a Spark see."""

from __future__ import annotations

import pytest

from app.model.locations import plain_location


@pytest.mark.parametrize(
    ("location", "plain"),
    [
        ("file:///a//b/../c/", "/a/c"),
        ("file:/a%20b#c?d", "/a%20b#c?d"),
        ("///a b", "/a b"),
        ("//", "/"),
        ("FILE:c:\\a\\..\\b", "/c:/b"),
        ("/c:\\a", "/c:\\a"),
        ("/../a", "/a"),
        ("S3A://bucket/a/./b/", "s3a://bucket/a/b"),
        ("s3a://bucket", "s3a://bucket/"),
        ("a", None),
        ("./a:b/c", None),
        ("1:/a", None),
        ("file:a", None),
        ("file://host/a", None),
        ("//host/a", None),
        ("", None),
    ],
)
def test_a_location_has_one_form(location: str, plain: str | None) -> None:
    assert plain_location(location) == plain
