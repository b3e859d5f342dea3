"""Removal of old data, and the paths of files."""
