"""The dashboard: static files, without a build step."""
