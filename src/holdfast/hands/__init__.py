"""Where tools run: disposable, without credentials, outside the brain."""
