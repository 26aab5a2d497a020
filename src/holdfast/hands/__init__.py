"""Hands: disposable sandboxes that run tools, without credentials, outside the brain."""
