"""Static files, without a build step: the dashboard, and Swagger UI, both with packages of npm (docs/development.md)."""
