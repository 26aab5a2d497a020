"""Captures of every view at 80 and 60 columns, from real terminals; `make captures` writes them."""
