"""Synthetic sessions of healthy and troubled workers, for measuring signs of trouble without a model."""
