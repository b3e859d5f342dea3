"""Processes that wait for everybody else, and become like others again: a whole session, with its threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cluster.stepping_back import can_be_undone, step_back, step_forward

# Told of on standard output: a thread and a child in a process group of its own, as Spark's workers are.
FAMILY = """
import os, sys, threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
if os.fork() == 0:
    os.setpgid(0, 0)
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(600)
time.sleep(600)
"""


@pytest.fixture
def family() -> Iterator[list[int]]:
    """The leader, which has stepped back before it started its child."""
    command = [sys.executable, "-c", f"import sys; sys.stdin.readline()\n{FAMILY}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as leader:
        assert leader.stdin and leader.stdout
        step_back(leader.pid, undoable=can_be_undone())
        leader.stdin.write(b"\n")
        leader.stdin.flush()
        pids = [leader.pid, int(leader.stdout.readline())]
        yield pids
        for pid in pids:
            os.kill(pid, 9)


def classes(pids: list[int]) -> list[int]:
    return [os.sched_getscheduler(int(thread)) for pid in pids for thread in os.listdir(f"/proc/{pid}/task")]


def weight(pid: int) -> str:
    autogroup = Path(f"/proc/{pid}/autogroup")
    return autogroup.read_text().split()[-1] if autogroup.exists() else "0"


def test_a_session_steps_back_with_all_that_it_starts_and_forward_as_a_whole(family: list[int]) -> None:
    assert set(classes(family)) == {os.SCHED_IDLE if can_be_undone() else os.SCHED_OTHER}
    step_forward(family[0])
    assert set(classes(family)) == {os.SCHED_OTHER}
    assert len(classes(family)) == 4
    assert [weight(pid) for pid in family] == ["0", "0"]


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has none")
def test_where_sessions_compete_a_session_has_the_least_weight(family: list[int]) -> None:
    while weight(family[0]) != "19":
        # The kernel changes ten in a second for who is not root.
        step_back(family[0], undoable=False)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_who_may_not_undo_it_is_told_so_and_does_not_keep_the_class() -> None:
    code = (
        "import os, resource; from app.cluster.stepping_back import can_be_undone;"
        "resource.setrlimit(resource.RLIMIT_NICE, (0, 0)); os.setgid(65534); os.setuid(65534);"
        "print(can_be_undone(), os.sched_getscheduler(0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", str(os.SCHED_OTHER)], done.stderr
