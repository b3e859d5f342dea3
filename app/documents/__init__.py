"""The forms of the documents that clients submit, as pydantic models, whose JSON schemas are those of the API."""
