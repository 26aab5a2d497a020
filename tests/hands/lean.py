"""The kit for providers that run the same agent as the default one, with its longer checks among the long forms."""

from __future__ import annotations

import pytest

from holdfast.testing.hands import CHECKS

LEAN = [pytest.param(name, marks=() if name.startswith("calls.") else (pytest.mark.faults,)) for name in CHECKS]
"""The kit, of which calls and files are shown each time; streams, jobs and services with the long forms: the agent that
runs them is the same for every provider."""
