"""Every operation of the API itself, by topic."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from app.api.routers import (
    attempts,
    cluster,
    declared,
    drivers,
    events,
    flink_pages,
    jobs,
    metrics,
    pages,
    requirements,
    rescales,
    submission,
)

ROUTERS: Final[tuple[APIRouter, ...]] = (
    requirements.router,
    declared.router,
    rescales.router,
    jobs.router,
    attempts.router,
    submission.router,
    events.router,
    metrics.router,
    cluster.router,
    flink_pages.router,
    cluster.health,
    drivers.router,
    pages.router,
)
