"""One pod that asks for room while no executor has any.

That there is room shows only when a pod is asked for. Drivers do so when slots are offered again, which costs a start
each, so it is done more and more seldom; a job that waits would be given up meanwhile. So while somebody waits, and
not one slot is there, the server asks itself: one pod like an executor's, that runs nothing and ends. When it has run,
there is a node for it and its image can be pulled there, and slots are offered again.
"""

from __future__ import annotations

import structlog

from app.cluster.kubernetes.api import GRACE_S, ApiError, KubernetesApi
from app.cluster.kubernetes.namespace import Pod
from app.cluster.kubernetes.pod_spec import PodSettings, TemplateError, pod_like_executors
from app.model.kubenames import JOB_LABEL

log = structlog.get_logger()

RENEWED_S = 60.0
"""A pod that has found no room is replaced: the scheduler looks at a new one at once."""

_PULLING_S = 600.0
"""For how long one that has a node may pull its image."""

_CONFLICT = 409


class Probe:
    """``home``: names the server, so that what it leaves when it dies is found by the next one."""

    def __init__(self, api: KubernetesApi, pods: PodSettings, home: str) -> None:
        self._api = api
        self._pods = pods
        self.label = f"probe-{home}"
        self._name = f"slotwise-{self.label}"
        self._asked_at = 0.0
        self._uid = ""
        self._seen_at = 0.0
        self._trouble = ""

    async def ask(self, found: Pod | None, now_s: float) -> bool:
        """Keep a pod that asks; ``found``: the one of the last look. Whether it has shown that there is room."""
        if found is None:
            await self._make(now_s)
            return False
        if found.uid != self._uid:
            self._uid, self._seen_at = found.uid, now_s
        if found.ending:
            return False
        if found.started and found.refused is None:
            await self._delete(found)
            return True
        pulls = found.placed and found.refused is None
        if found.is_over or now_s - self._seen_at >= (_PULLING_S if pulls else RENEWED_S):
            await self._delete(found)
        return False

    async def stop(self, found: Pod | None) -> None:
        """No job waits, or there is room."""
        if found is not None and not found.ending:
            await self._delete(found)

    async def _make(self, now_s: float) -> None:
        if now_s - self._asked_at < RENEWED_S / 6:
            # The one that was made is not in the list yet, or it was refused.
            return
        self._asked_at = now_s
        try:
            pod = pod_like_executors(self._name, {JOB_LABEL: self.label}, self._pods, command=["true"])
            pod["spec"]["terminationGracePeriodSeconds"] = GRACE_S
            await self._api.make_pod(pod)
        except (ApiError, TemplateError) as error:
            if getattr(error, "status", None) != _CONFLICT:
                self._tell(str(error))
            return
        self._tell("")
        log.info("a pod asks for room", pod=self._name)

    async def _delete(self, pod: Pod) -> None:
        try:
            await self._api.delete_pod(pod.name, pod.uid)
        except ApiError as error:
            self._tell(str(error))

    def _tell(self, trouble: str) -> None:
        """Log a change once."""
        if trouble and trouble != self._trouble:
            log.warning("no pod can ask for room", error=trouble)
        self._trouble = trouble
