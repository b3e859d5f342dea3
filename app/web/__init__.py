"""Static files of the dashboard and of Swagger UI, without a build step (docs/development.md)."""
