"""`slotwise demo`: a year of flights through an elastic job, and the proof that its output is exact."""

from __future__ import annotations

from app.cli.demo.command import demo

__all__ = ["demo"]
