"""A call that a person has to allow: the session waits without a process, and goes on by its id once it is answered."""

import asyncio
from decimal import Decimal

import holdfast


@holdfast.tool(on_unknown="ask", price_usd="0.10", timeout_s=30)
async def publish(page: str) -> str:
    """Publish a page."""
    return f"{page} is out"


async def main() -> None:
    agent = holdfast.Agent(tools=[publish, "read"], ask=["publish"])
    async with holdfast.open() as hf:
        async with hf.stream(agent, "Publish the front page.", budget_usd=Decimal("2.50")) as stream:
            async for event in stream:
                print(event.seq, event.type)
        waiting = stream.result

    async with holdfast.open(tools=[publish]) as hf:  # later, in any process
        for item in await hf.inbox():
            print(item.action)
            await hf.approve(item, "Go.", by="anna")
        result = await hf.resume(waiting.session_id)
        print(result.status, result.text, result.cost_usd)


asyncio.run(main())
