"""An API server of Kubernetes that answers from a recording, and checks what is sent to it.

It knows the pods of one namespace: they are made, listed, watched, changed and deleted as the API's reference says.
What becomes of them is for tests to say, or for a kubelet (`tests.kubernetes.kubelet`). Anything else is written down
as unexpected: tests look at that in the end.
"""

from __future__ import annotations

import copy
import json
import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.kubernetes.rules import pod_faults, selected
from tests.kubernetes.wire import Authority, Handler

RECORDING = Path(__file__).parent / "recording"
NAMESPACE = "jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
QUOTAS = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OK, CREATED = 200, 201


def recorded(name: str) -> Any:
    return json.loads((RECORDING / f"{name}.json").read_text(encoding="utf-8"))


STATUS = recorded("pod-status")
ERRORS = recorded("errors")
OTHER = recorded("other")


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    token: str | None


@dataclass
class Fault:
    """Answers that are put in front: ``times`` of those that match."""

    method: str
    path: str
    error: str
    times: int
    done: threading.Event = field(default_factory=threading.Event)


class ReplayApi:
    """Everything of it may be called by any thread."""

    request_type = Request

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.requests: list[Request] = []
        self.unexpected: list[str] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self.quotas: Any = {"kind": "ResourceQuotaList", "apiVersion": "v1", "metadata": {}, "items": []}
        self.tokens: set[str] | None = None
        self.denied: set[tuple[str, str]] = set()
        self.watches: list[str] = []
        self.on_pod: Callable[[dict[str, Any]], None] = lambda pod: None
        self.on_delete: Callable[[dict[str, Any], int], None] | None = None
        self._events: list[tuple[int, str, dict[str, Any]]] = []
        self._version = 100
        self._oldest = 0
        self._faults: list[Fault] = []
        self.closed = False
        self._server: ThreadingHTTPServer | None = None
        self._scheme = "http"

    def listen(self, authority: Authority | None = None) -> ReplayApi:
        """On loopback, with TLS if there is a certificate for it. Without this, only `respond` answers."""
        handler = type("Handler", (Handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        if authority is not None:
            self._scheme = "https"
            # Not in the thread that accepts: a client that is slow would hold up the others.
            self._server.socket = authority.context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.lock.notify_all()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def respond(self, request: httpx.Request) -> httpx.Response:
        """The answer without a network, for `httpx.MockTransport`."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ") or None
        body = json.loads(request.content) if request.content else None
        asked = Request(request.method, request.url.path, dict(request.url.params), body, token)
        status, headers, document = self.answer(asked)
        return httpx.Response(status, headers=headers, json=document)

    # -- what tests do

    def fail(self, method: str, path: str, error: str, times: int = 1) -> Fault:
        """Answer the next ``times`` requests that match the pattern ``path`` with a recorded error."""
        fault = Fault(method, path, error, times)
        with self.lock:
            self._faults.append(fault)
        return fault

    @property
    def executors(self) -> list[str]:
        """The names of the pods of executors that there are."""
        with self.lock:
            return [name for name in self.pods if "-exec-" in name]

    def sent(self, method: str, path: str) -> list[Request]:
        """What was sent, by method and a pattern of the path."""
        with self.lock:
            return [one for one in self.requests if one.method == method and re.fullmatch(path, one.path)]

    def stage(self, name: str, stage: str, node: str | None = None) -> None:
        """What the scheduler and the kubelet write into a pod."""
        with self.lock:
            pod = self.pods.get(name)
            if pod is None:
                return
            pod["status"] = copy.deepcopy(STATUS[stage])
            if node is not None:
                pod["spec"]["nodeName"] = node
            self._changed("MODIFIED", pod)

    def remove(self, name: str) -> None:
        """A pod's object goes."""
        with self.lock:
            pod = self.pods.pop(name, None)
            if pod is not None:
                self._changed("DELETED", pod)

    def add(self, pod: dict[str, Any]) -> None:
        """A pod that somebody else has made."""
        with self.lock:
            self.pods[pod["metadata"]["name"]] = pod
            self._changed("ADDED", pod)

    def forget_events(self) -> None:
        """Watches that begin at what was before are too old from now on."""
        with self.lock:
            self._oldest = self._version

    # -- answers

    def answer(self, request: Request) -> tuple[int, dict[str, str], Any]:
        with self.lock:
            self.requests.append(request)
            if self.tokens is not None and request.token not in self.tokens:
                return _error("401")
            for fault in self._faults:
                if fault.method == request.method and re.fullmatch(fault.path, request.path):
                    fault.times -= 1
                    if fault.times == 0:
                        self._faults.remove(fault)
                        fault.done.set()
                    return _error(fault.error)
        name = request.path.removeprefix(f"{PODS}/")
        if name != request.path and "/" not in name:
            return self._answer_pod(request, name)
        match request.method, request.path:
            case "GET", "/version":
                return OK, {}, OTHER["version"]
            case "GET", path if path == PODS:
                return OK, {}, self._list(request)
            case "GET", path if path == QUOTAS:
                return OK, {}, self.quotas
            case "POST", path if path == PODS:
                return self._create(request)
            case "DELETE", path if path == PODS:
                return self._delete_all(request)
            case "POST", path if path == REVIEWS:
                return self._review(request)
        self._unexpected(f"{request.method} {request.path} {request.query}")
        return _error("404")

    def _answer_pod(self, request: Request, name: str) -> tuple[int, dict[str, str], Any]:
        match request.method:
            case "GET":
                pod = self.pods.get(name)
                return _error("404") if pod is None else (OK, {}, pod)
            case "PATCH":
                return self._patch(name, request)
            case "DELETE":
                return self._delete(name, request)
        self._unexpected(f"{request.method} {request.path}")
        return _error("404")

    def _list(self, request: Request) -> Any:
        with self.lock:
            pods = [copy.deepcopy(pod) for pod in self.pods.values() if selected(pod, request.query)]
            metadata = {"resourceVersion": str(self._version)}
        limit = int(request.query.get("limit", 0))
        begin = int(request.query.get("continue", 0))
        page = pods[begin : begin + limit] if limit else pods
        if limit and begin + limit < len(pods):
            metadata["continue"] = str(begin + limit)
        return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": page}

    def _create(self, request: Request) -> tuple[int, dict[str, str], Any]:
        for fault in pod_faults(request.body):
            self._unexpected(f"a pod is posted that {fault}")
        pod = copy.deepcopy(request.body)
        name = pod["metadata"]["name"]
        with self.lock:
            if name in self.pods:
                return _error("409")
            pod["metadata"] |= {
                "namespace": NAMESPACE,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            pod["status"] = copy.deepcopy(STATUS["pending"])
            if "dryRun" in request.query:
                return CREATED, {}, pod
            self.pods[name] = pod
            self._changed("ADDED", pod)
            made = copy.deepcopy(pod)
        self.on_pod(made)
        return CREATED, {}, made

    def _patch(self, name: str, request: Request) -> tuple[int, dict[str, str], Any]:
        with self.lock:
            pod = self.pods.get(name)
            if pod is None:
                return _error("404")
            for kind in ("labels", "annotations"):
                found = request.body.get("metadata", {}).get(kind) or {}
                pod["metadata"].setdefault(kind, {}).update(found)
            self._changed("MODIFIED", pod)
            return OK, {}, copy.deepcopy(pod)

    def _delete(self, name: str, request: Request) -> tuple[int, dict[str, str], Any]:
        options = request.body or {}
        with self.lock:
            pod = self.pods.get(name)
            if pod is None:
                return _error("404")
            uid = (options.get("preconditions") or {}).get("uid", pod["metadata"]["uid"])
            if uid != pod["metadata"]["uid"]:
                return _error("409")
            if pod["status"]["phase"] != "Running" or self.on_delete is None:
                self.remove(name)
                return OK, {}, pod
            grace_s = options.get("gracePeriodSeconds", 30)
            pod["metadata"]["deletionTimestamp"] = "2026-01-05T10:06:00Z"
            pod["metadata"]["deletionGracePeriodSeconds"] = grace_s
            self._changed("MODIFIED", pod)
            ending = copy.deepcopy(pod)
        self.on_delete(ending, grace_s)
        return OK, {}, ending

    def _delete_all(self, request: Request) -> tuple[int, dict[str, str], Any]:
        """The verb deletecollection."""
        if "labelSelector" not in request.query:
            self._unexpected("all pods of the namespace are deleted")
            return _error("403")
        gone = self._list(request)
        for pod in gone["items"]:
            self._delete(pod["metadata"]["name"], request)
        return OK, {}, gone

    def _review(self, request: Request) -> tuple[int, dict[str, str], Any]:
        asked = request.body["spec"]["resourceAttributes"]
        if request.body["kind"] != "SelfSubjectAccessReview" or asked["namespace"] != NAMESPACE:
            self._unexpected(f"a review {request.body}")
        denied = (asked["verb"], asked["resource"]) in self.denied
        return (
            CREATED,
            {},
            {**OTHER["review-denied" if denied else "review-allowed"], "spec": request.body["spec"]},
        )

    # -- watches

    def watch(self, query: dict[str, str], send: Callable[[Any], None]) -> None:
        """Send what happens, until ``send`` fails or the time is over that the client asked for."""
        end = time.monotonic() + float(query.get("timeoutSeconds") or 3600)
        with self.lock:
            self.watches.append(query.get("labelSelector", ""))
            at = int(query.get("resourceVersion") or 0)
            if at and at < self._oldest:
                send(OTHER["watch-too-old"])
                return
            begin = [] if at else [("ADDED", copy.deepcopy(pod)) for pod in self.pods.values()]
            at = at or self._version
        for kind, pod in begin:
            if selected(pod, query):
                send({"type": kind, "object": pod})
        while time.monotonic() < end:
            with self.lock:
                news = [event for event in self._events if event[0] > at]
                if not news:
                    if self.closed:
                        return
                    self.lock.wait(0.2)
                    continue
            for version, kind, pod in news:
                at = version
                if selected(pod, query):
                    send({"type": kind, "object": pod})

    # -- inside

    def _changed(self, kind: str, pod: dict[str, Any]) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, kind, copy.deepcopy(pod)))
        self.lock.notify_all()

    def _unexpected(self, what: str) -> None:
        with self.lock:
            self.unexpected.append(what)


def _error(name: str) -> tuple[int, dict[str, str], Any]:
    found = ERRORS[name]
    return found["body"]["code"], found["headers"], found["body"]
