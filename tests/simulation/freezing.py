"""Control planes that are stopped: frozen where they are, between two steps of their tasks."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from tests.simulation.virtual_time import VirtualTimeLoop
from tests.simulation.world import CURRENT


class FreezingLoop(VirtualTimeLoop):
    """Holds back whatever belongs to a control plane that is stopped."""

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        owner = CURRENT.get() if context is None else context.get(CURRENT)
        frozen = None if owner is None else owner.frozen
        if frozen is None:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        frozen.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        owner = CURRENT.get() if context is None else context.get(CURRENT)
        if owner is None:
            return super().call_at(when, callback, *args, context=context)

        def fire() -> None:
            if owner.frozen is None:
                callback(*args)
            else:
                # What happens first after the pause may cancel it.
                owner.frozen.append(asyncio.Handle(late, (), self, context))

        def late() -> None:
            if not timer.cancelled():
                callback(*args)

        timer = super().call_at(when, fire, context=context)
        return timer
