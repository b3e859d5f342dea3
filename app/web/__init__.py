"""Static files, without a build step: Swagger UI, from the package swagger-ui-dist of npm (docs/development.md)."""
