"""Models behind a provider's HTTP API, called through pydantic-ai's direct interface. Each family is an extra.

A family is imported only when one of its models is used: the libraries take up to two seconds.
"""
