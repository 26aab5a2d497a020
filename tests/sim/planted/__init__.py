"""Bugs planted into the code on purpose: the simulator has to find them."""

from __future__ import annotations

from tests.sim.planted import in_brain, in_family, in_hands, in_log, in_people, in_requests, in_session
from tests.sim.planted.kit import Plant

PLANTS: tuple[Plant, ...] = (
    *in_log.BED.plants,
    *in_session.BED.plants,
    *in_brain.BED.plants,
    *in_requests.BED.plants,
    *in_hands.BED.plants,
    *in_family.BED.plants,
    *in_people.BED.plants,
)
