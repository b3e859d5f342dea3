"""The hook for operations of the REST API that are not its own, and for what else hangs on a server (`app.plugins`)."""

from __future__ import annotations

from typing import ClassVar

from fastapi import APIRouter, FastAPI

from app.documents.form import Form
from app.worker.observer import Observer


class Plugin(Observer):
    """Of one server. ``routers`` have its operations; ``tags`` and ``forms`` are what the OpenAPI document says of them
    and of their bodies."""

    routers: ClassVar[tuple[APIRouter, ...]] = ()
    tags: ClassVar[dict[str, str]] = {}
    forms: ClassVar[tuple[type[Form], ...]] = ()

    def add_to(self, app: FastAPI) -> None:
        """Add layers around all operations of ``app``, and to its state what the operations of the plugin need."""

    def close(self) -> None:
        """Send what is not sent yet, as far as that takes no longer than a moment."""
