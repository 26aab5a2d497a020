# A mission met one of two criteria; what does its board say first?
# before: "All 2 entries of feature_list.json hold.", which was its default goal.
# now: "1 of 2 met", and the goal is named as the default.
. "$LIB"
git init -q -b main greeter
printf 'def hello(name):\n    raise NotImplementedError\n' > greeter/greet.py
cat > greeter/feature_list.json <<'END'
[{"id": "hello", "description": "Greets", "paths": ["greet.py"], "check": "python3 -c \"import greet; assert greet.hello(1) == 1\""},
 {"id": "polite", "description": "Asks", "paths": ["greet.py"], "check": "python3 -c \"import greet; greet.ask\""}]
END
printf 'planner = "items"\njudge = "off"\nmax_replans = 0\nmax_attempts = 1\nworkers = 1\n' > greeter/mission.toml
holdfast trust greeter --yes > /dev/null 2>&1
git -C greeter add -A
git -C greeter -c user.name=A -c user.email=a@example.com commit -q -m Begin
hand_in='{"tool_calls": [{"name": "hand_in", "input": {"status": "done", "notes": "It greets."}}]}'
model "$(bash_call "sed -i 's/raise NotImplementedError/return name/' greet.py")" "$hand_in"
ends 3 holdfast mission run --repo greeter --name greet --session-id greet --model scripted:m.json
ends 0 holdfast mission show greet
head -1 "$SAID" > first && grep -q "1 of 2 met" first || fail "the first line does not have 1 of 2 met"
shows "(default)"
ends 0 holdfast brief greet
shows "needs 1 decision" "1 of 2 criteria are met"
