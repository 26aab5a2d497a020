"""The conductor: code that decides what a mission does next."""
