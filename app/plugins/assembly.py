"""Which plugins a server has."""

from __future__ import annotations

from app.api.plugin import Plugin
from app.plugins.batch_samples import SampledBatches
from app.plugins.livy.router import Livy
from app.plugins.prometheus.operation import Prometheus


def plugins_of(*, traces: bool) -> tuple[Plugin, ...]:
    """OpenTelemetry's packages are imported only for ``traces``.

    Raises:
        ImportError: they are not installed.
    """
    plugins = (Livy(), SampledBatches(), Prometheus())
    if not traces:
        return plugins
    from app.plugins.traces import exporting

    return (*plugins, exporting())
