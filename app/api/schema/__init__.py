"""The JSON of the API as Pydantic models: what the OpenAPI document says. Answers are not run through them;
the contract tests check that every answer has exactly this form.
"""
