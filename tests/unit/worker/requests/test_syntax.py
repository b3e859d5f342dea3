"""The process that compiles programs: it outlives scripts, is replaced when it dies, and ends with its server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import psutil
import pytest

from app.worker.requests.syntax import SyntaxHelper

WRONG = b"x = 1\ndef f(:\n"
FAULT = f"SyntaxError: invalid syntax; the program runs with Python {sys.version_info.major}.{sys.version_info.minor}."


@pytest.fixture
async def helper() -> AsyncIterator[SyntaxHelper]:
    made = SyntaxHelper()
    yield made
    await made.close()


def pid_of(helper: SyntaxHelper) -> int:
    assert helper._process is not None
    return helper._process.pid


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(20):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)


async def test_one_process_answers_for_all_scripts(helper: SyntaxHelper) -> None:
    assert await helper.find_fault("a.py", b"x = 1\n") is None
    pid = pid_of(helper)
    scripts = {f"{number}.py": b"\n" * number + (b"def f(:\n" if number % 2 else b"") for number in range(20)}
    found = await asyncio.gather(*(helper.find_fault(*script) for script in scripts.items()))
    assert found == [
        f"{number}.py, line {number + 1}: {FAULT}" if number % 2 else None for number in range(20)
    ]
    large = b"x = 1\n" * 20_000
    assert await helper.find_fault("large.py", large) is None
    assert await helper.find_fault("large.py", large + WRONG) == f"large.py, line 20002: {FAULT}"
    assert await helper.find_fault("nul.py", b"x = 1\n\x00") is not None
    assert (
        await helper.find_fault("name.py", b"def f(%b, %b): pass\n" % (b"n" * 9999, b"n" * 9999)) is not None
    )
    assert pid_of(helper) == pid


@pytest.mark.parametrize("script", [b"-" * 200_000 + b"1", b"x = 1\n"], ids=["too deep", "killed"])
async def test_a_script_that_brings_it_down_is_let_pass_and_the_next_one_is_told(
    helper: SyntaxHelper, script: bytes
) -> None:
    assert await helper.find_fault("a.py", b"x = 1\n") is None
    pid = pid_of(helper)
    if script == b"x = 1\n":
        os.kill(pid, signal.SIGKILL)
        await until_gone(pid)
    assert await helper.find_fault("deep.py", script) is None
    assert await helper.find_fault("a.py", WRONG) == f"a.py, line 2: {FAULT}"
    assert pid_of(helper) != pid


async def test_one_that_hangs_is_given_up(helper: SyntaxHelper) -> None:
    assert await helper.find_fault("a.py", b"x = 1\n") is None
    os.kill(pid := pid_of(helper), signal.SIGSTOP)
    # Only now: on a busy host one that works may need longer.
    helper._limit_s = 0.2
    assert await helper.find_fault("a.py", WRONG) is None
    assert not psutil.pid_exists(pid)
    helper._limit_s = 20.0
    assert await helper.find_fault("a.py", WRONG) == f"a.py, line 2: {FAULT}"


async def test_who_gives_up_waiting_takes_no_answer_of_another_one(helper: SyntaxHelper) -> None:
    assert await helper.find_fault("a.py", b"x = 1\n") is None
    os.kill(pid_of(helper), signal.SIGSTOP)
    asking = [asyncio.create_task(helper.find_fault("a.py", WRONG)) for _ in range(2)]
    await asyncio.sleep(0)
    for each in asking:
        each.cancel()
    os.kill(pid_of(helper), signal.SIGCONT)
    assert await helper.find_fault("b.py", b"\n" + WRONG) == f"b.py, line 3: {FAULT}"
    assert await helper.find_fault("c.py", b"x = 1\n") is None


async def test_the_end_of_the_server_is_its_end(helper: SyntaxHelper) -> None:
    assert await helper.find_fault("a.py", b"x = 1\n") is None
    pid = pid_of(helper)
    for _ in range(2):
        await helper.close()
    assert not psutil.pid_exists(pid)
    assert await helper.find_fault("a.py", WRONG) is None


_SERVER = """
import asyncio
from app.worker.requests.syntax import SyntaxHelper

async def main():
    helper = SyntaxHelper()
    await helper.find_fault("a.py", b"x = 1")
    print(helper._process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_server_that_is_killed_leaves_no_process_behind() -> None:
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", _SERVER, stdout=subprocess.PIPE)
    assert server.stdout is not None
    pid = int(await server.stdout.readline())
    assert psutil.pid_exists(pid)
    server.kill()
    await server.wait()
    await until_gone(pid)
