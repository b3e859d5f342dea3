"""The page of Spark in a driver: where it listens, whatever a program asks for."""

from __future__ import annotations

import socket

import pytest

from app.driver.session import _page_conf

ASKED = {"spark.ui.enabled": "true"}


@pytest.fixture(autouse=True)
def _on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


def test_a_port_that_somebody_has_is_not_waited_for() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert _page_conf({**ASKED, "spark.ui.port": port}) == {**ASKED, "spark.ui.port": "0"}
    assert _page_conf({**ASKED, "spark.ui.port": port}) == {**ASKED, "spark.ui.port": port}
    assert _page_conf(ASKED) == {**ASKED, "spark.ui.port": "0"}


def test_what_is_no_port_is_one_that_is_free() -> None:
    assert _page_conf({"spark.ui.enabled": "TRUE", "spark.ui.port": "x"}) == {**ASKED, "spark.ui.port": "0"}


@pytest.mark.parametrize("address", [None, "10.0.0.5", ""])
def test_nothing_listens_to_the_network(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP")
    if address is not None:
        monkeypatch.setenv("SPARK_LOCAL_IP", address)
    assert _page_conf(ASKED) == {"spark.ui.enabled": "false"}


def test_without_being_asked_for_there_is_none() -> None:
    # Spark would take the last one for true, also where the page would be open to the network.
    for conf in ({}, {"spark.ui.port": "4040"}, {"spark.ui.enabled": " true"}):
        assert _page_conf(conf) == {"spark.ui.enabled": "false"}
