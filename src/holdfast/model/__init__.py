"""Models: a Protocol, a scripted model, and clients of providers."""
