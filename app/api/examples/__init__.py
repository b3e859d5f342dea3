"""The examples of the OpenAPI document: one small job, a source and a count, seen from every side."""
