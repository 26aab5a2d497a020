"""File formats of contracts, read and updated in place."""
