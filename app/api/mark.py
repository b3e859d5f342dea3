"""The header that identifies answers of a Slotwise server."""

MARK = "X-Slotwise"
API_VERSION = "v1"
