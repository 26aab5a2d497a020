"""`holdfast items`: the verb, the opening of a run over a list, and items.toml."""
