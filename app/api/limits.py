"""The limits for the size of bodies, for the server and for the command line."""

from __future__ import annotations

from typing import Final

BODY_LIMIT_BYTES: Final = 1024 * 1024
"""Of a body that is no form, and of the document in a form."""
FORM_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""Of a form: a document and its artifacts."""
