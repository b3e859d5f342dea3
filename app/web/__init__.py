"""Static files, without a build step: the dashboard and Swagger UI, with packages of npm (docs/development.md)."""
