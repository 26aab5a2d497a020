"""Missions as pure code: contract, plan, conductor, ratchet, merge queue, documents, brief."""
