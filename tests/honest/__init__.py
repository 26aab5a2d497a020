"""Honest work near the borders of what is protected: none of it may be refused."""
