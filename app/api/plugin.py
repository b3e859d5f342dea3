"""The hook for operations of the REST API that are not its own, and for what else hangs on a server (`app.plugins`)."""

from __future__ import annotations

from typing import ClassVar

from fastapi import APIRouter, FastAPI
from starlette.types import Scope

from app.documents.form import Form
from app.worker.observer import Observer


class Plugin(Observer):
    """Of one server. ``routers`` have its operations; ``tags`` and ``forms`` are what the OpenAPI document says of them
    and of their bodies."""

    routers: ClassVar[tuple[APIRouter, ...]] = ()
    tags: ClassVar[dict[str, str]] = {}
    forms: ClassVar[tuple[type[Form], ...]] = ()

    def add_to(self, app: FastAPI) -> None:
        """Add to the state of ``app`` what the operations of the plugin need."""

    def request_began(self, scope: Scope) -> None:
        """A request came; called in its context."""

    def request_answered(self, scope: Scope, status: int, seconds: float) -> None:
        """The answer to a request begins, after so long: a stream may go on for days. ``scope`` has the route."""

    def close(self) -> None:
        """Send what is not sent yet, as far as that takes no longer than a moment."""
