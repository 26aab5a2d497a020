# The agent asks "Postgres or SQLite?"
# before: `approve` sent "Yes." as the answer.
# now: `approve` refuses and names the command, which works as printed.
. "$LIB"
model "$(question "Postgres or SQLite?")" "$(says "I take it.")"
ends 3 holdfast run "Choose a database." --scratch --model scripted:m.json --session-id db --no-sandbox
ends 2 holdfast approve itm_
shows "needs an answer in words" "holdfast answer itm_"
ends 0 holdfast answer itm_ "SQLite" --no-wake
shows "answered itm_"
hides "approved"
ends 0 holdfast wake db
shows "I take it."
ends 0 holdfast logs db --type agent.tool_result
shows "SQLite"
