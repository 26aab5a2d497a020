"""The HTTP server of one home: access, pages, and API, on the use cases of `service`."""
