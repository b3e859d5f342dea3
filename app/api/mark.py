"""The header by which clients know that an answer is a Slotwise server's, and not of something else at its port."""

MARK = "X-Slotwise"
API_VERSION = "v1"
