"""SIGTERM: a program that handles it, told to end by somebody else, or by its server."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.driver.harness import Bench, Driver, wait_for
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
IN_TURNS = HANDLES.replace(
    "    pass\n",
    """    for told_to, handler in (("ignore", signal.SIG_IGN), ("handle", end)):
        file = pathlib.Path(f"{sys.argv[1]}-{told_to}")
        if file.exists():
            signal.signal(signal.SIGTERM, handler)
            file.unlink()
""",
)
"""It ignores the signal, and handles it again, when it is told to."""
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
        pytest.param(HANDLES, "signal 15\nbehind it True\n", id="handler", marks=pytest.mark.long),
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


@pytest.mark.long
def test_a_stop_is_told_to_asyncio_behind_the_last_batch(rig: Bench) -> None:
    driver = rig.start(job(rig, ASYNC), **conf())
    rig.wait_batches(2)
    drained(rig, driver)
    assert told(rig) == "asked, False"


def drained(rig: Bench, driver: Driver) -> None:
    rig.control_plane.order(stop="drain")
    wait_for("the end", lambda: any(one["drained"] for one in rig.control_plane.of_type("stopped")))
    assert driver.exit_status() == 0
    assert not rig.control_plane.of_type("failed")


def test_a_handler_is_called_by_no_rescale_and_by_a_stop_behind_the_last_batch_and_may_be_taken_away(
    rig: Bench,
) -> None:
    document = job(rig, IN_TURNS)
    driver = rig.start(document, **conf())
    rig.wait_batches(2)
    rig.control_plane.order(stop="boundary")
    assert the_end(rig, "stopped")["driver_alive"]
    driver.assign(rig.spec(document, **conf()))
    rig.wait_batches(len(rig.control_plane.batches) + 1)

    def told_to(what: str) -> None:
        file = Path(f"{rig.directory}/out-{what}")
        file.touch()
        wait_for(what, lambda: not file.exists())

    told_to("ignore")
    driver.process.send_signal(signal.SIGTERM)
    rig.wait_batches(len(rig.control_plane.batches) + 2)
    assert not Path(f"{rig.directory}/out-told").exists()
    told_to("handle")
    drained(rig, driver)
    assert sorted(told(rig).splitlines()) == ["behind it False", "signal 15"], driver.log
