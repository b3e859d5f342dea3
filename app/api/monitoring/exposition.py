"""The answer to a scrape, made in pieces, so that it does not delay other requests if there are many jobs."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder

from app.api.monitoring.figures import (
    JOB_FAMILIES,
    SERVER_FAMILIES,
    VERTEX_FAMILIES,
    Family,
    Figures,
    Sums,
    job_figures,
    server_figures,
    vertex_figures,
)
from app.api.monitoring.meters import Meters
from app.model.status import JobStatus
from app.worker.views import Census, JobView

KEPT_S: Final = 1.0
"""For this time after a scrape other scrapes get its answer, which bounds their cost."""
VERTICES_PER_JOB: Final = 10
"""This number, times the limit of jobs, is the limit of vertices with their own figures."""
NAME_CHARS: Final = 100
"""Of names that users give."""
_JOBS_AT_ONCE: Final = 10
_SERIES_AT_ONCE: Final = 500
_END: Final = b"# EOF\n"

_GZIP_LEVEL: Final = 1

_Encode = Callable[[Any], bytes]


class _Format(NamedTuple):
    encode: _Encode
    content_type: str


_FORMATS: Final = {
    is_openmetrics: _Format(*choose_encoder(accept))
    for is_openmetrics, accept in ((False, ""), (True, "application/openmetrics-text; version=1.0.0"))
}
"""There is no other, whatever version is asked for: one answer of each is kept."""


def _wants_openmetrics(accept: str) -> bool:
    try:
        return choose_encoder(accept)[1].startswith("application/openmetrics-text")
    except (TypeError, ValueError):
        # It asks for a version that is none.
        return False


class Answer(NamedTuple):
    """``made_s``: by the clock of the event loop."""

    made_s: float
    content_type: str
    text: bytes
    compressed: bytes


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
        self._kept: dict[str, Answer] = {}

    async def answer(self, accept: str, now_ms: int) -> Answer:
        """By what the header Accept asks for."""
        format_ = _FORMATS[_wants_openmetrics(accept)]
        async with self._one_at_a_time:
            now_s = asyncio.get_running_loop().time()
            kept = self._kept.get(format_.content_type)
            if kept is None or now_s - kept.made_s >= KEPT_S:
                text = b"".join([part async for part in self._parts(format_.encode, now_ms)])
                compressed = await asyncio.to_thread(gzip.compress, text, _GZIP_LEVEL)
                kept = self._kept[format_.content_type] = Answer(
                    now_s, format_.content_type, text, compressed
                )
            return kept

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
        metrics, sums = _Metrics(), Sums()
        vertices_left = self._jobs_max * VERTICES_PER_JOB
        without_jobs = without_vertices = 0
        for number, view in enumerate(census.views):
            if number % _JOBS_AT_ONCE == 0:
                await asyncio.sleep(0)
            sums.add(view)
            count = len(view.state.graph.vertices)
            if number >= self._jobs_max:
                without_jobs += 1
            elif count > vertices_left:
                without_vertices += count
                metrics.add_job(view, now_ms)
            else:
                vertices_left -= count
                metrics.add_job(view, now_ms)
                metrics.add_vertices(view)
        left_out = {
            "jobs_without_series": without_jobs,
            "vertices_without_series": without_vertices,
            "event_streams": self._streams(),
        }
        metrics.add(SERVER_FAMILIES, {}, server_figures(census, sums) | left_out)
        for status in JobStatus:
            if not status.is_globally_terminal:
                metrics.add(SERVER_FAMILIES, {"status": status.value}, {"jobs": sums.statuses[status]})
        for kind, drivers in (("job", sums.drivers), ("warm", census.warm_drivers)):
            metrics.add(SERVER_FAMILIES, {"kind": kind}, {"drivers": drivers})
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

    def add_job(self, view: JobView, now_ms: int) -> None:
        labels = {"job_id": view.job_id, "job_name": _label(view.state.graph.name)}
        self.add(JOB_FAMILIES, labels, job_figures(view, now_ms))

    def add_vertices(self, view: JobView) -> None:
        for vertex, figures in vertex_figures(view):
            labels = {"job_id": view.job_id, "vertex_id": vertex.id, "vertex_name": _label(vertex.name)}
            self.add(VERTEX_FAMILIES, labels, figures)

    def all(self) -> Iterable[Metric]:
        return self._of.values()


def _metric(family: Family) -> Metric:
    return Metric(family.name.removesuffix("_total"), family.text, family.kind)


def _text(encode: _Encode, metric: Metric) -> bytes:
    # As a registry that has one metric.
    return encode(SimpleNamespace(collect=lambda: (metric,))).removesuffix(_END)


def _label(name: str) -> str:
    """A name that a user gave, bounded, and without the lone surrogates that have no UTF-8 form."""
    return name[:NAME_CHARS].encode("utf-8", "replace").decode()
