"""The door to models: a Protocol, a scripted model, and models of providers."""
