"""An agent with a tool of its own, in ten lines. The model is that of HOLDFAST_MODEL, such as `anthropic:NAME`."""

import holdfast


@holdfast.tool(on_unknown="retry", keyed=True)
def book(seat: str, *, idempotency_key: str) -> str:
    """Book a seat, such as 12A."""
    return f"{seat} is booked ({idempotency_key})"


result = holdfast.run_sync(holdfast.Agent(tools=[book]), "Book me a seat at the window.", key="trip-7")
print(result.status, result.text)
