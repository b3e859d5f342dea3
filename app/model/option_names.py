"""Names of options that others than the table of options have to say."""

from __future__ import annotations

from typing import Final

AUTOSCALER: Final = "job.autoscaler."
"""The beginning of the names of Flink's autoscaler, which reads them from a job's settings. Here they do nothing."""
FINAL_EXCEPTIONS: Final = "slotwise.failure.final-exceptions"
RECOVERABLE_EXCEPTIONS: Final = "slotwise.failure.recoverable-exceptions"
USER_CODE_ATTEMPTS: Final = "slotwise.failure.user-code-attempts"
LOCAL_TIMEOUT: Final = "slotwise.failure.local-timeout"
