"""Models behind a provider's HTTP API, through pydantic-ai's direct interface. Each family is an extra.

Nothing here is imported before a model of that family is asked for: the libraries take up to two seconds.
"""
