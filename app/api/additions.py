"""The hook for operations that the REST API has besides its own."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter

from app.documents.form import Form


@dataclass(frozen=True, slots=True, eq=False)
class Additions:
    """Operations by their ``routers``, with the ``tags`` and the ``forms`` of bodies that the OpenAPI document has for
    them."""

    routers: tuple[APIRouter, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    forms: tuple[type[Form], ...] = ()
