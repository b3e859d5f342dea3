"""The few calls of the Kubernetes API that the server makes itself. Spark makes its own, from the drivers."""

from __future__ import annotations

import ssl
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import httpx
import structlog

from app.model.kubenames import JOB_LABEL

log = structlog.get_logger()

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts the credentials of the service account into a pod."""

GRACE_S = 1
"""Enough for what a container does before it ends; the processes of a dead driver have nothing to finish."""
_ANSWER_TIMEOUT_S = 5.0
_PAGE = 500
_PAGES_AGAIN = 3
_GONE = 410
_NOT_FOUND = 404
_CONFLICT = 409
_THROTTLED = 429


class ApiError(Exception):
    """The API did not do what it was asked to; the message is a sentence. ``status`` is None if it did not answer."""

    def __init__(self, message: str, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def is_throttled(self) -> bool:
        """Whether it asks for patience: it is there, and knows what it knew."""
        return self.status == _THROTTLED


class TokenFile(httpx.Auth):
    """The token as the file has it at each request: Kubernetes replaces it now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str:
        """
        Raises:
            ApiError: there is no token in it, or more than that.
        """
        try:
            token = self._path.read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ApiError(f"The token file {self._path} cannot be read: {reason}.") from None
        if not token or token.split() != [token]:
            # Spark's client fails then, and shows the token in its message.
            raise ApiError(
                f"The token file {self._path} should hold the token and nothing else: no blanks, and no line break at "
                "its end."
            )
        return token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self.read()}"
        yield request


class KubernetesApi:
    """The API as one account sees one namespace.

    ``token_file`` None: without credentials (a proxy has them). ``ca_file`` None: the authorities of this host.
    """

    def __init__(
        self,
        server: str,
        namespace: str,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.server = server
        self._namespace = f"/api/v1/namespaces/{namespace}"
        self._namespace_name = namespace
        self._ca_file = ca_file
        self._transport = transport
        self._auth = TokenFile(token_file) if token_file is not None else None
        if self._auth is not None:
            self._auth.read()
        self._seen = _mark_of(ca_file)
        self._http = self._client()
        # Those before, which may be in use.
        self._retired: list[httpx.AsyncClient] = []

    async def close(self) -> None:
        for client in (*self._retired, self._http):
            await client.aclose()

    async def version(self) -> str:
        """Raises: ApiError."""
        return str((await self._call("GET", "/version")).get("gitVersion", "unknown"))

    async def pods(self, job_id: str | None = None) -> Mapping[str, Any]:
        """A PodList: the pods of ``job_id``, or of all jobs. Raises: ApiError."""
        selector = JOB_LABEL if job_id is None else f"{JOB_LABEL}={job_id}"
        return await self._list("pods", {"labelSelector": selector})

    async def quotas(self) -> Mapping[str, Any]:
        """A ResourceQuotaList. Raises: ApiError."""
        return await self._list("resourcequotas", {})

    async def make_pod(self, pod: Mapping[str, Any]) -> None:
        """Raises: ApiError; with status 409 there is one of this name."""
        await self._call("POST", f"{self._namespace}/pods", json=pod)

    async def delete_pod(self, name: str, uid: str) -> None:
        """Let a pod end, if it is this one; one that is gone is well. Raises: ApiError."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": GRACE_S,
            "preconditions": {"uid": uid},
        }
        try:
            await self._call("DELETE", f"{self._namespace}/pods/{name}", json=options)
        except ApiError as error:
            # A conflict: another pod has this name now.
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise

    async def may(self, verb: str, resource: str) -> bool:
        """Whether the account may do this in the namespace (SelfSubjectAccessReview). Raises: ApiError."""
        attributes = {"namespace": self._namespace_name, "verb": verb, "group": "", "resource": resource}
        answer = await self._call(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json={
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            },
        )
        return bool(answer.get("status", {}).get("allowed", False))

    async def try_pod(self, pod: Mapping[str, Any]) -> None:
        """Ask whether the pod would be let in, and make none (a dry run). Raises: ApiError."""
        await self._call("POST", f"{self._namespace}/pods", params={"dryRun": "All"}, json=pod)

    # -- inside

    def _client(self) -> httpx.AsyncClient:
        """
        Raises:
            ApiError: the file of authorities cannot be used.
        """
        try:
            verify = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise ApiError(f"The file of authorities {self._ca_file} cannot be used: {error}.") from None
        return httpx.AsyncClient(
            base_url=self.server,
            auth=self._auth,
            verify=verify,
            timeout=_ANSWER_TIMEOUT_S,
            trust_env=False,
            transport=self._transport,
        )

    def _follow_ca_file(self) -> None:
        """Trust whom the file names now: Kubernetes replaces it when the authority changes."""
        found = _mark_of(self._ca_file)
        if found is None or found == self._seen:
            return
        self._seen = found
        try:
            client = self._client()
        except ApiError as error:
            # It may be in the middle of being written; then it changes again.
            log.warning("the file of authorities has changed, and is not used", error=str(error))
            return
        log.info("the file of authorities has changed, and is used", ca_file=str(self._ca_file))
        self._retired.append(self._http)
        self._http = client

    async def _list(self, resource: str, params: Mapping[str, str]) -> Mapping[str, Any]:
        """A whole list, page by page; from the start again if the API has forgotten the rest of it meanwhile."""
        for again in range(_PAGES_AGAIN):
            try:
                return await self._pages(resource, params)
            except ApiError as error:
                if error.status != _GONE or again == _PAGES_AGAIN - 1:
                    raise
        raise AssertionError

    async def _pages(self, resource: str, params: Mapping[str, str]) -> Mapping[str, Any]:
        path = f"{self._namespace}/{resource}"
        whole: dict[str, Any] = await self._call("GET", path, params={**params, "limit": str(_PAGE)})
        page = whole
        while token := (page.get("metadata") or {}).get("continue"):
            page = await self._call("GET", path, params={**params, "limit": str(_PAGE), "continue": token})
            whole = {**whole, "items": [*(whole.get("items") or ()), *(page.get("items") or ())]}
        return whole

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        self._follow_ca_file()
        try:
            answer = await self._http.request(method, path, params=params, json=json)
        except httpx.HTTPError as error:
            raise ApiError(f"{self.server} does not answer: {str(error) or type(error).__name__}.") from None
        try:
            document = answer.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            document = {}
        if answer.is_success and document:
            return document
        said = str(document.get("message", "")).rstrip(".")
        sentence = f"{self.server} answers {answer.status_code} to {method} {path}" + (
            f": {said}" if said else ""
        )
        raise ApiError(f"{sentence}.", answer.status_code, str(document.get("reason", "")))


def _mark_of(file: Path | None) -> tuple[int, int, int] | None:
    """What changes when the file does; None if there is none."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)
