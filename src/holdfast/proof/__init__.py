"""Proof that the product works: demos, models that know the answer, the libraries that they rebuild, tampers."""
