"""Conformance kits and fakes for those who write a door of their own."""
