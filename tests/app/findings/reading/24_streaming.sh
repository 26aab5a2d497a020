# Print the text of an agent as it streams, with the loop of docs/python.md.
# before: thinking, text, and names of tools ran into one another.
# now: the loop of the page looks at `Delta.kind`, and prints the text alone.
. "$LIB"
model '{"thinking": "Hmm.", "text": "I look.", "tool_calls": [{"name": "bash", "input": {"command": "ls"}}]}' "$(says Done.)"
grep -q 'if piece.kind == "text":' "$DOCS/python.md"
cat > stream.py <<'END'
import asyncio, holdfast

async def main():
    async with holdfast.open() as hf:
        agent = holdfast.Agent(model="scripted:m.json", tools=["bash"])
        async for piece in hf.stream(agent, "Look.", deltas=True, sandbox=False):
            if isinstance(piece, holdfast.Delta) and piece.kind == "text":
                print(piece.text, end="")

asyncio.run(main())
END
ends 0 python -W ignore stream.py
[ "$(cat "$SAID")" = "I look.Done." ] || fail "other words than the agent's"
