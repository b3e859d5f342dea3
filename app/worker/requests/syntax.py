"""The syntax of programs: a process of its own compiles them, one after the other. It runs none of them, but a script
may bring a compiler down, or keep it busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_HELPER: Final = """
import json, signal, sys
signal.signal(signal.SIGALRM, signal.SIG_DFL)
limit_s, sent, answers = int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer
while len(size := sent.read(8)) == 8:
    fault, content = None, sent.read(int.from_bytes(size, "big"))
    signal.alarm(limit_s)  # ends a process whose server has gone meanwhile
    try:
        compile(content, "script", "exec", dont_inherit=True)
    except SyntaxError as error:
        fault = error.lineno or 1, f"{type(error).__name__}: {error.msg}"[:2000]
    except ValueError as error:  # NUL, before Python 3.11.4
        fault = 1, str(error)
    signal.alarm(0)
    del content
    answers.write(json.dumps(fault).encode() + b"\\n")
    answers.flush()
"""
_LIMIT_S: Final = 20.0


class SyntaxHelper:
    """The process. It is started for the first script, and again for the one after a script that has ended it. It ends
    when its standard input does, so with the server at the latest."""

    def __init__(self, limit_s: float = _LIMIT_S) -> None:
        self._limit_s = limit_s
        # Scripts wait here, and not in threads that others need.
        self._thread = ThreadPoolExecutor(1, "syntax")
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    async def find_fault(self, script: str, content: bytes) -> str | None:
        """What keeps ``content`` from being Python, in a sentence with file and line; None if nothing does, or it
        cannot be told."""
        if self._closing:
            return None
        try:
            # One that keeps the process busy may be before it, but not several.
            async with asyncio.timeout(2 * self._limit_s):
                found = await asyncio.get_running_loop().run_in_executor(self._thread, self._compile, content)
        except TimeoutError:
            return None
        if found is None:
            return None
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return f"{script}, line {found[0]}: {found[1]}; the program runs with Python {python}."

    async def close(self) -> None:
        """End the process. Harmless when repeated."""
        self._closing = True
        if (process := self._process) is not None:
            process.kill()
        await asyncio.to_thread(self._thread.shutdown)
        self._end()

    def _compile(self, content: bytes) -> tuple[int, str] | None:
        """Line and text of the fault. In the thread."""
        if self._closing:
            return None
        if self._process is not None and self._process.poll() is not None:
            self._end()
        try:
            process = self._process = self._process or self._start()
            assert process.stdin is not None and process.stdout is not None
            limit = threading.Timer(self._limit_s, process.kill)
            limit.start()
            try:
                process.stdin.write(len(content).to_bytes(8, "big"))
                process.stdin.write(content)
                process.stdin.flush()
                answer = process.stdout.readline()
            finally:
                limit.cancel()
        except OSError:
            answer = b""
        if not answer.endswith(b"\n"):
            self._end()
            return None
        found: tuple[int, str] | None = json.loads(answer)
        return found

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-W", "ignore", "-c", _HELPER, str(max(1, round(self._limit_s)))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # What interrupts the server is not for this one: it may be needed until the server has ended.
            start_new_session=True,
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        process.wait()
