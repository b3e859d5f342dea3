"""The parallelism of a rescale record in words, as the command line and the dashboard show it."""

from __future__ import annotations

import pytest

from app.api.render.rescales import _CAUSES, parallelism_in_words
from app.api.schema.rescales import VertexRescale
from app.model.rescale import TriggerCause


def vertices(**parallelism: tuple[int | None, int | None]) -> list[VertexRescale]:
    return [
        VertexRescale(
            vertex_id=f"{place:032x}",
            name=name,
            slot_sharing_group_id="0" * 32,
            slot_sharing_group="default",
            desired=9,
            sufficient=1,
            pre=before,
            post=after,
        )
        for place, (name, (before, after)) in enumerate(parallelism.items())
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (vertices(a=(1, 4), b=(2, 2)), "a 1->4"),
        (vertices(a=(2, 2), b=(1, None)), "unchanged: a 2, b 1"),
        (vertices(a=(None, 2), b=(None, 1)), "start: a 2, b 1"),
        (vertices(a=(1, 2), b=(None, 1)), "a 1->2, b 1"),
        (vertices(a=(None, None)), None),
        (vertices(a=(2, None), b=(None, None)), "unchanged: a 2"),
        ([], None),
    ],
)
def test_the_parallelism_before_and_after(given: list[VertexRescale], text: str | None) -> None:
    assert parallelism_in_words(given, is_open=False) == text


def test_every_cause_has_words() -> None:
    assert set(_CAUSES) == set(TriggerCause) and len(set(_CAUSES.values())) == len(_CAUSES)


def test_what_is_not_decided_yet_is_not_told_as_unchanged() -> None:
    assert parallelism_in_words(vertices(a=(2, None)), is_open=True) is None
    assert parallelism_in_words(vertices(a=(2, 3)), is_open=True) == "a 2->3"
