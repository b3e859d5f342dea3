"""Pydantic models of the API's JSON, for the answers and for the OpenAPI document."""
