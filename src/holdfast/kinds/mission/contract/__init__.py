"""Contracts: file formats, check commands, protected and hidden files, amendments."""
