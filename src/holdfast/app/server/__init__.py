"""The faces of the HTTP server: its verbs, its service, and what it is given of an opened home."""
