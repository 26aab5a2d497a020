"""Plain sessions with checks before they are done, commits at each park, and hooks of the project."""
