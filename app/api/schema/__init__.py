"""The JSON of the API as Pydantic models: answers are made of them, and so is the OpenAPI document."""
