"""Audit of the counts in the brief of a run over a list, from exported events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def counts_of_items(events: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    """Replay a run over a list. Return the counts of its items; nothing for another session."""
    if not events[0].get("items"):
        return {}
    at: dict[str, str] = {}
    for raw in events[1:]:
        key, kind = str(raw.get("key", "")), str(raw["type"])
        match kind:
            case "items.added":
                keys = [each["key"] for each in raw["items"]]
                at |= {each: "" for each in keys if raw.get("replace") or each not in at}
            case "items.removed":
                at = {each: word for each, word in at.items() if each not in raw["keys"]}
            case "items.retried":
                at |= {each: "" for each in raw.get("keys") or at if at[each] == "item.quarantined"}
            case "item.audited" if at.get(key) == "audit":
                at[key] = "item.ended" if raw["ok"] else ""
            case "item.ended" | "item.quarantined" if key in at:
                at[key] = "audit" if raw.get("audit") else kind
    words = list(at.values())
    done, bad = words.count("item.ended"), words.count("item.quarantined")
    tries = sum(raw["type"] in ("item.failed", "item.quarantined") for raw in events)
    return {
        "items": len(at), "items_done": done, "items_quarantined": bad, "items_left": len(at) - done - bad,
        "items_failed_tries": tries,
    }  # fmt: skip
