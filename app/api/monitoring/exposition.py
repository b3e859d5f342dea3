"""What a scrape is answered: made in pieces, so that with many jobs the requests of others are not held up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder

from app.api.monitoring.figures import (
    JOB_FAMILIES,
    SERVER_FAMILIES,
    VERTEX_FAMILIES,
    Family,
    Figures,
    job_figures,
    server_figures,
    vertex_figures,
)
from app.api.monitoring.meters import Meters
from app.model.status import JobStatus
from app.worker.views import Census

KEPT_S: Final = 1.0
"""Whoever asks within so long of another gets the same answer: what scrapes cost is bounded."""
VERTICES_PER_JOB: Final = 10
"""So many vertices, times the most jobs, have figures of their own."""
NAME_CHARS: Final = 100
"""Of names that users give."""
_JOBS_AT_ONCE: Final = 10
_SERIES_AT_ONCE: Final = 500
_END: Final = b"# EOF\n"

_Encode = Callable[[Any], bytes]


class Exposition:
    """Of one server. ``jobs_max``: of at most so many jobs there are figures of their own, of the others sums.
    ``streams``: how many clients follow events.
    """

    def __init__(
        self,
        meters: Meters,
        census: Callable[[], Census],
        streams: Callable[[], int],
        *,
        jobs_max: int,
        version: str,
    ) -> None:
        self._meters = meters
        self._census, self._streams = census, streams
        self._jobs_max = jobs_max
        self._version = version
        self._one_at_a_time = asyncio.Lock()
        self._kept: dict[str, tuple[float, bytes]] = {}

    async def answer(self, accept: str, now_ms: int) -> tuple[bytes, str]:
        """The body and its content type, by what the header Accept asks for."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):
            # It asks for a version that is none.
            encode, content_type = choose_encoder("")
        async with self._one_at_a_time:
            now_s = asyncio.get_running_loop().time()
            kept = self._kept.get(content_type)
            if kept is None or now_s - kept[0] >= KEPT_S:
                body = b"".join([part async for part in self._parts(encode, now_ms)])
                self._kept = {content_type: (now_s, body)}
            return self._kept[content_type][1], content_type

    async def _parts(self, encode: _Encode, now_ms: int) -> AsyncIterator[bytes]:
        whole = encode(self._meters.registry)
        yield whole.removesuffix(_END)
        for metric in await self._metrics(now_ms):
            head, samples = Metric(metric.name, metric.documentation, metric.type), metric.samples
            head_text = _text(encode, head)
            yield head_text
            for start in range(0, len(samples), _SERIES_AT_ONCE):
                head.samples = samples[start : start + _SERIES_AT_ONCE]
                yield _text(encode, head)[len(head_text) :]
                await asyncio.sleep(0)
        if whole.endswith(_END):
            yield _END

    async def _metrics(self, now_ms: int) -> Iterable[Metric]:
        census = self._census()
        metrics = _Metrics()
        shown = census.jobs[: self._jobs_max]
        vertices_left = self._jobs_max * VERTICES_PER_JOB
        without = 0
        for number, view in enumerate(shown):
            name = _label(view.state.graph.name)
            labels = {"job_id": view.job_id, "job_name": name}
            metrics.add(JOB_FAMILIES, labels, job_figures(view, now_ms))
            count = len(view.state.graph.vertices)
            if count > vertices_left:
                without += count
                continue
            vertices_left -= count
            for vertex, figures in vertex_figures(view):
                labels = {"job_id": view.job_id, "vertex_id": vertex.id, "vertex_name": _label(vertex.name)}
                metrics.add(VERTEX_FAMILIES, labels, figures)
            if number % _JOBS_AT_ONCE == 0:
                await asyncio.sleep(0)
        left_out = {
            "jobs_without_series": len(census.jobs) - len(shown),
            "vertices_without_series": without,
            "event_streams": self._streams(),
        }
        metrics.add(SERVER_FAMILIES, {}, server_figures(census) | left_out)
        statuses = Counter(view.status for view in census.jobs)
        for status in JobStatus:
            if not status.is_globally_terminal:
                metrics.add(SERVER_FAMILIES, {"status": status.value}, {"jobs": statuses[status]})
        for kind, count in (
            ("job", sum(view.driver_pid is not None for view in census.jobs)),
            ("warm", census.warm_drivers),
        ):
            metrics.add(SERVER_FAMILIES, {"kind": kind}, {"drivers": count})
        metrics.add(SERVER_FAMILIES, {"version": self._version}, {"info": 1})
        return metrics.all()


class _Metrics:
    """Samples by family."""

    def __init__(self) -> None:
        families = (SERVER_FAMILIES, JOB_FAMILIES, VERTEX_FAMILIES)
        self._of = {family.name: _metric(family) for each in families for family in each.values()}

    def add(self, families: Mapping[str, Family], labels: dict[str, str], figures: Figures) -> None:
        for name, value in figures.items():
            family = families[name].name
            self._of[family].add_sample(family, labels, value)

    def all(self) -> Iterable[Metric]:
        return self._of.values()


class _Of:
    """A registry of one metric, as encoders take it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _metric(family: Family) -> Metric:
    return Metric(family.name.removesuffix("_total"), family.text, family.kind)


def _text(encode: _Encode, metric: Metric) -> bytes:
    return encode(_Of(metric)).removesuffix(_END)


def _label(name: str) -> str:
    """A name that a user gave, bounded, and without the lone surrogates that have no UTF-8 form."""
    return name[:NAME_CHARS].encode("utf-8", "replace").decode()
