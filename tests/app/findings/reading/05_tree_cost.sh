# A session opened two children; what did it cost?
# before: `show` and `ps` left the children out, beside a cap that counted them.
# now: every view shows the cost of the tree, and the session's own beside it.
. "$LIB"
printf 'name = "lead"\ntools = ["search_log", "spawn", "wait_for_children"]\n' > lead.toml
spawn='{"tool_calls": [{"name": "spawn", "input": {"goal": "A part.", "name": "part", "tools": ["search_log"]}}]'
model "$spawn, \"usage\": {\"input_tokens\": 100000, \"output_tokens\": 0}}" \
  '{"tool_calls": [{"name": "wait_for_children", "input": {}}]}' "$(says "All is in.")"
ends 0 holdfast run "Share the work." --scratch --agent lead.toml --model scripted:m.json --budget 5 --session-id book --no-sandbox
ends 0 holdfast show book --json
cat > check.py <<'END'
import json, sys
shown = json.load(open(sys.argv[1]))
assert shown["cost_usd"] > 1.5 * shown["own_cost_usd"] > 0, shown
print(f"${shown['cost_usd']:.4f}")
END
short=$(python3 check.py "$SAID")
for command in "ps" "show book" "cost --by session" "brief book"; do
  ends 0 holdfast $command
  shows "$short"
done
