"""Which plugins a server has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fastapi import FastAPI

from app.api.additions import Additions
from app.plugins.batch_samples import SampledBatches
from app.plugins.livy.router import LIVY
from app.plugins.prometheus.meters import Meters
from app.plugins.prometheus.operation import PROMETHEUS, add_to
from app.worker.observer import Observer

if TYPE_CHECKING:
    from app.plugins.traces import OpenTelemetry


@dataclass(frozen=True, slots=True)
class Plugins:
    """Those of one server. ``observers`` go to its control plane, `ADDITIONS` to its REST API."""

    meters: Meters
    traces: OpenTelemetry | None

    ADDITIONS: ClassVar[tuple[Additions, ...]] = (LIVY, PROMETHEUS)

    @classmethod
    def of_server(cls, *, traces: bool) -> Plugins:
        """OpenTelemetry's packages are imported only for ``traces``.

        Raises:
            ImportError: they are not installed.
        """
        if not traces:
            return cls(Meters(), None)
        from app.plugins.traces import exporting

        return cls(Meters(), exporting())

    @property
    def observers(self) -> tuple[Observer, ...]:
        return (self.meters, SampledBatches(), *([] if self.traces is None else [self.traces]))

    def add_layers(self, app: FastAPI) -> None:
        """Put layers around all operations of ``app``, which has `ADDITIONS`."""
        add_to(app, self.meters)
        if self.traces is not None:
            self.traces.add_to(app)

    def close(self) -> None:
        """Send what is not sent yet, as far as that takes no longer than a moment."""
        if self.traces is not None:
            self.traces.close()
