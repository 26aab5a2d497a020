"""A tool that looks whether its effect happened. Kill this program at any moment and start it again: nothing is charged
twice.
"""

import asyncio
from pathlib import Path

import holdfast

LEDGER = Path("ledger.txt")


@holdfast.tool(on_unknown="probe", keyed=True)
def charge(customer: str, cents: int, *, idempotency_key: str) -> str:
    """Charge a customer.

    Args:
        customer: Who pays.
        cents: How much.
    """
    with LEDGER.open("a") as ledger:
        ledger.write(f"{idempotency_key} {customer} {cents}\n")
    return "charged"


@charge.probe
def was_charged(idempotency_key: str) -> bool:
    """Whether the ledger has the charge."""
    return LEDGER.exists() and f"{idempotency_key} " in LEDGER.read_text()


async def main() -> None:
    agent = holdfast.Agent(tools=[charge])
    async with holdfast.open() as hf:
        async for piece in hf.stream(agent, "Charge Ann 500 cents.", key="invoice-12", deltas=True):
            if not isinstance(piece, holdfast.Delta):
                continue
            if piece.kind == "text":
                print(piece.text, end="", flush=True)
            elif piece.kind == "tool":
                print(f"[{piece.text}]")
        result = await hf.show("invoice-12")
    print(f"\n{result.status}: {LEDGER.read_text()}")


asyncio.run(main())
