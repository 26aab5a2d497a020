# Read the question of an agent in the progress of a run, and in its brief.
# before: "Postgres or SQLite? Postgres or SQLite?", and a brief that offers to "approve" it.
# now: once, and the brief offers to answer.
. "$LIB"
model "$(question "Postgres or SQLite?")"
ends 3 holdfast run "Choose." --scratch --model scripted:m.json --session-id db --no-sandbox
hides "SQLite? Postgres"
ends 0 holdfast brief db
shows "answer: \`holdfast answer itm_"
hides "approve:"
