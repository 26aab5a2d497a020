"""Plain sessions with checks before they are done, a commit at each park, or hooks of the project."""
