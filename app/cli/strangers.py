"""A sentence about the program that answers at the server's address if it is not Slotwise, and advice."""

from __future__ import annotations

import re

import httpx

from app.api.mark import MARK
from app.cli.errors import CliError, NoServer, Stranger

ADVICE = "Name the right server with --server or SLOTWISE_SERVER."
_SHOWN_CHARS = 100
_SHOWN_BYTES = 4096
_TAG = re.compile(r"<[^<>]{0,200}>")
_TITLE = re.compile(r"<title>([^<]{0,200})</title>", re.IGNORECASE)


def is_stranger(response: httpx.Response) -> bool:
    """A proxy in front of a server keeps the header, as it keeps all that it does not know."""
    return MARK not in response.headers


def stranger(server: str, response: httpx.Response) -> CliError:
    """What to say of an answer that no Slotwise server has given."""
    what = [f"{response.status_code} {response.reason_phrase}".rstrip()]
    if place := response.headers.get("Location"):
        what.append(f"go to {_short(place)}")
    what.append(_short(response.headers.get("Content-Type", "no content type")))
    if program := response.headers.get("Server"):
        what.append(f"from {_short(program)}")
    begins = _first_line(response.content[:_SHOWN_BYTES].decode("utf-8", "replace"))
    told = f"What answers at {server} is not a Slotwise server: {', '.join(what)}"
    told += f". The answer begins with: {begins}" if begins else ", and nothing else."
    flink = ""
    if (
        "json" in response.headers.get("Content-Type", "")
        or "org.apache.flink" in response.text[:_SHOWN_BYTES]
    ):
        flink = " It may be Flink's JobManager, which has the same port and paths."
    return Stranger(response.status_code, told, ADVICE + flink)


def no_http(server: str, error: httpx.RequestError) -> CliError:
    """What to say where a connection was made, and no answer in HTTP came."""
    detail = str(error).rstrip(".")
    tls = f"If it speaks TLS, write {server.replace('http://', 'https://', 1)}. " * server.startswith(
        "http://"
    )
    if "disconnected without sending" in detail:
        return NoServer(f"What listens at {server} closed the connection without an answer. {tls}{ADVICE}")
    if "illegal" in detail:
        return NoServer(f"What listens at {server} does not speak HTTP ({_short(detail)}). {tls}{ADVICE}")
    return NoServer(f"The connection to {server} broke: {detail or type(error).__name__}.")


def no_tls(server: str, detail: str) -> str | None:
    """What to say of a TLS connection that could not be made; None if that was not the matter."""
    if "CERTIFICATE_VERIFY_FAILED" in detail:
        return (
            f"The certificate of {server} is not trusted: {_short(detail)}. SSL_CERT_FILE may name a file with the "
            "certificate of its authority."
        )
    if "SSL" in detail or "TLS" in detail:
        plain = server.replace("https://", "http://", 1)
        return (
            f"What listens at {server} does not speak TLS ({_short(detail)}). For plain HTTP write {plain}."
        )
    return None


def _first_line(text: str) -> str:
    """The title of a page, else the first line that says something."""
    title = _TITLE.search(text)
    lines = (_TAG.sub("", line).strip() for line in text.splitlines())
    return _short(title[1].strip() if title else next((line for line in lines if line), ""))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS].rstrip() + " ..."
