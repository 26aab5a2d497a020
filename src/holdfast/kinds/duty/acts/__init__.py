"""Acts of duties and of their firings."""
