"""Whether a page is that of the master that is called: what is certain, and what is not."""

from __future__ import annotations

import pytest

from app.cluster.standalone.identity import Match, addresses_of, is_local, match
from app.model.addresses import spark_masters

NAMES = {
    "master": {"10.0.0.5"},
    "master.example.org": {"10.0.0.5", "10.1.0.5"},
    "staging": {"10.0.0.9"},
    "service": {"10.96.0.1"},
    "here": {"127.0.1.1"},
    "localhost": {"127.0.0.1", "::1"},
    "this-host": {"10.0.0.77"},
}


def found(masters: str, url: str) -> Match:
    def addresses(host: str) -> frozenset[str]:
        literal = host.replace(".", "").isdigit() or ":" in host
        return frozenset({host}) if literal else frozenset(NAMES.get(host.lower(), ()))

    def local(address: str) -> bool:
        return address in ("127.0.0.1", "127.0.1.1", "::1", "10.0.0.77")

    return match(spark_masters(masters), url, addresses=addresses, local=local)


@pytest.mark.parametrize(
    ("masters", "url"),
    [
        ("spark://master:7077", "spark://master:7077"),
        ("spark://Master.Example.org:7077", "spark://master.example.ORG:7077"),
        ("spark://[::1]:7077", "spark://[0:0:0:0:0:0:0:1]:7077"),
        # Other names and addresses of the same host.
        ("spark://master:7077", "spark://10.0.0.5:7077"),
        ("spark://master:7077", "spark://master.example.org:7077"),
        ("spark://localhost:7077", "spark://127.0.0.1:7077"),
        ("spark://localhost:7077", "spark://here:7077"),
        ("spark://127.0.0.1:7077", "spark://this-host:7077"),
        # One of several.
        ("spark://one:7077,master:7078", "spark://10.0.0.5:7078"),
        ("spark://one:7077,two:7077", "spark://two:7077"),
    ],
)
def test_a_page_of_the_master(masters: str, url: str) -> None:
    assert found(masters, url) is Match.SAME


@pytest.mark.parametrize(
    ("masters", "url"),
    [
        ("spark://127.0.0.1:7077", "spark://127.0.0.1:7078"),
        ("spark://localhost:7077", "spark://this-host:7078"),
        ("spark://master:7077", "spark://10.0.0.5:7078"),
        ("spark://nowhere:7077", "spark://nowhere:7078"),
        ("spark://one:7077,master:7077", "spark://master.example.org:7078"),
    ],
)
def test_another_port_of_the_same_host_is_another_master(masters: str, url: str) -> None:
    assert found(masters, url) is Match.OTHER


@pytest.mark.parametrize(
    ("masters", "url"),
    [
        # A container that is called by its host's name; a service of Kubernetes; a host with two networks.
        ("spark://localhost:7077", "spark://3f2a9c:7077"),
        ("spark://localhost:17077", "spark://3f2a9c:7077"),
        ("spark://service:7077", "spark://10.244.0.3:7077"),
        ("spark://master:7077", "spark://staging:7077"),
        ("spark://master:7077", "spark://staging:7078"),
        # Every address of its host, which it does not name.
        ("spark://master:7077", "spark://0.0.0.0:7077"),
        ("spark://master:7077", "spark://0.0.0.0:7078"),
        # The other name may be that of the same host, and has the port.
        ("spark://master:7077,unknown:7078", "spark://master:7078"),
        # It does not say whose page it is.
        ("spark://master:7077", ""),
        ("spark://master:7077", "spark://one:7077,two:7077"),
        ("spark://master:7077", "http://master:8080"),
    ],
)
def test_what_cannot_be_told(masters: str, url: str) -> None:
    assert found(masters, url) is Match.UNKNOWN


def test_names_are_looked_up() -> None:
    assert "127.0.0.1" in addresses_of("localhost")
    assert addresses_of("no-such-host.invalid") == frozenset()
    assert addresses_of("x" * 300) == frozenset()
    assert is_local("127.0.0.1") and not is_local("192.0.2.7")
