"""SIGTERM: a program that handles it, told to end by somebody else, or by its server."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.driver.harness import Bench
from tests.integration.driver.test_program_attempt import START, WINDOWS, conf, job, the_end

pytestmark = pytest.mark.timeout(600)

# While Spark is asked for something, a handler can ask it for nothing else, also with plain Python.
HANDLES = f"""
import pathlib, signal, sys
told = pathlib.Path(sys.argv[1] + "-told")
asked = False

def tell(text):
    with told.open("a") as file:
        print(text, file=file)

def end(number, frame):
    global asked
    tell(f"signal {{number}}")
    asked = True

{WINDOWS}
{START}
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
assert signal.signal(signal.SIGTERM, end) == signal.SIG_DFL
while not asked and not query.awaitTermination(1):
    pass
tell(f"behind it {{query.isActive}}")
query.stop()
"""
ASYNC = f"""
import asyncio, pathlib, signal, sys
told = pathlib.Path(sys.argv[1] + "-told")
{WINDOWS}
{START}

async def main():
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    await asked.wait()
    told.write_text("asked, " + str(query.isActive))
    query.stop()

asyncio.run(main())
"""


def told(rig: Bench) -> str:
    return Path(f"{rig.directory}/out-told").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(HANDLES, "signal 15\nbehind it True\n", id="handler"),
        pytest.param(
            HANDLES.replace("asked = True", "sys.exit(0)"), "signal 15\n", id="exit", marks=pytest.mark.long
        ),
        pytest.param(ASYNC, "asked, True", id="asyncio"),
    ],
)
def test_whoever_ends_a_program_that_handles_it_does_not_end_its_job(
    rig: Bench, text: str, said: str
) -> None:
    driver = rig.start(job(rig, text), **conf())
    rig.wait_batches(2)
    driver.process.send_signal(signal.SIGTERM)
    failed = the_end(rig, "failed")
    assert failed["outside"] and failed["recoverable"]
    assert failed["error"] == "The driver was told to end by a signal (SIGTERM), not by its server."
    assert driver.exit_status() == 4
    assert told(rig) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(HANDLES, "signal 15\nbehind it False\n", id="handler"),
        pytest.param(ASYNC, "asked, False", id="asyncio", marks=pytest.mark.long),
    ],
)
def test_a_stop_calls_the_handler_behind_the_last_batch(rig: Bench, text: str, said: str) -> None:
    driver = rig.start(job(rig, text), **conf())
    rig.wait_batches(2)
    rig.control_plane.order(stop="drain")
    assert the_end(rig, "stopped")["drained"]
    assert driver.exit_status() == 0
    assert sorted(told(rig).splitlines()) == sorted(said.splitlines()), driver.log
    assert not rig.control_plane.of_type("failed")


def test_a_rescale_calls_no_handler_and_a_signal_that_is_ignored_does_nothing(rig: Bench) -> None:
    text = HANDLES.replace("signal.SIGTERM, end)", "signal.SIGTERM, signal.SIG_IGN)")
    document = job(rig, text)
    driver = rig.start(document, **conf())
    rig.wait_batches(2)
    driver.process.send_signal(signal.SIGTERM)
    rig.control_plane.order(stop="boundary")
    assert the_end(rig, "stopped")["driver_alive"]
    driver.assign(rig.spec(document, **conf()))
    rig.wait_batches(len(rig.control_plane.batches) + 2)
    rig.control_plane.order(stop="kill")
    assert driver.exit_status() == 0
    assert not Path(f"{rig.directory}/out-told").exists()
