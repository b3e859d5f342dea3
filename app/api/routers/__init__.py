"""Every operation of the API, by topic."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from app.api.routers import (
    attempts,
    cluster,
    drivers,
    endings,
    events,
    flink_pages,
    jobs,
    livy,
    metrics,
    monitoring,
    pages,
    requirements,
    rescales,
    scaling_policy,
    slot_share,
    submission,
    versions,
)

ROUTERS: Final[tuple[APIRouter, ...]] = (
    requirements.router,
    scaling_policy.router,
    slot_share.router,
    rescales.router,
    jobs.router,
    attempts.router,
    submission.router,
    endings.router,
    events.router,
    versions.router,
    livy.router,
    metrics.router,
    monitoring.router,
    cluster.router,
    flink_pages.router,
    cluster.health,
    drivers.router,
    pages.router,
)
