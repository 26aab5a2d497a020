# A worker waits for its model's server, or works: what does the mission show?
# before: "turn 0 of 200 ... $0.0000", refs and trees, and nothing of what the workers do.
# now: each call of a worker, what was met, and at the end the branch.
. "$LIB"
git init -q -b main repo
echo '[{"id": "one", "description": "Make one", "paths": ["one"], "check": "test -e one"}]' > repo/feature_list.json
printf 'planner = "items"\njudge = "off"\nmax_replans = 0\nmax_attempts = 1\nworkers = 1\n' > repo/mission.toml
holdfast trust repo --yes > /dev/null 2>&1
git -C repo add -A
git -C repo -c user.name=A -c user.email=a@example.com commit -q -m Begin
model "$(bash_call "touch one")" '{"tool_calls": [{"name": "hand_in", "input": {"status": "done", "notes": "It is there."}}]}'
ends 0 holdfast mission run --repo repo --name one --session-id one --model scripted:m.json
shows "worker one: bash: touch one" "1 met"
hides "turn 0 of 200" "tree "
