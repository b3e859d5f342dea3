"""The certificate of the API's authority: replaced on the disk, it is trusted at the next call, and the old one not."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.cluster.kubernetes.api import ApiError, KubernetesApi
from tests.kubernetes.wire import Authority


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"gitVersion": "v1.33.2"}')

    def log_message(self, *_: Any) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    """A client that does not trust it hangs up."""

    def handle_error(self, *_: Any) -> None:
        pass


@pytest.fixture
def authorities(tmp_path: Path) -> list[Authority]:
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    return [Authority(place) for place in places]


@pytest.fixture
def servers(authorities: list[Authority]) -> Iterator[list[str]]:
    """The API before and after its authority has changed."""
    made = [Quiet(("127.0.0.1", 0), Handler) for _ in authorities]
    threads = []
    for server, authority in zip(made, authorities, strict=True):
        server.socket = authority.context.wrap_socket(server.socket, server_side=True)
        threads.append(threading.Thread(target=server.serve_forever, args=(0.01,)))
        threads[-1].start()
    yield [f"https://127.0.0.1:{server.server_port}" for server in made]
    for server, thread in zip(made, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_replaced_file_is_read_again(
    tmp_path: Path, authorities: list[Authority], servers: list[str]
) -> None:
    file = tmp_path / "ca.crt"
    shutil.copy(authorities[0].file, file)

    async def version(api: KubernetesApi) -> str:
        try:
            return await api.version()
        except ApiError as error:
            assert "does not answer" in str(error)
            return "not trusted"

    async def run() -> None:
        before, after = (KubernetesApi(server, "jobs", ca_file=file) for server in servers)
        try:
            assert [await version(before), await version(after)] == ["v1.33.2", "not trusted"]
            # In the middle of being written: what was read before counts.
            file.write_text("-----BEGIN CERTIFICATE-----")
            with capture_logs() as logs:
                assert await version(before) == "v1.33.2"
                assert await version(before) == "v1.33.2"
            assert [entry["log_level"] for entry in logs] == ["warning"]
            file.unlink()
            assert await version(before) == "v1.33.2"
            shutil.copy(authorities[1].file, file)
            assert [await version(before), await version(after)] == ["not trusted", "v1.33.2"]
        finally:
            await before.close()
            await after.close()

    asyncio.run(run())
