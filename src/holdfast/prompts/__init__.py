"""The texts that models are given, one file each."""
