# Watch a loop: which item, what did the agent print, how many items pass?
# before: eleven lines of loop_step, loop_look, and loop_restore for each iteration, and never the output.
# now: the item, the output of the command, and the items that pass.
. "$LIB"
mkdir app
echo '[{"id": "one", "description": "Make one", "check": "test -e one", "passes": false}]' > app/feature_list.json
echo 'echo words of the agent; touch one' > app/agent.sh
ends 0 holdfast loop --session-id lp --workspace app $MINE -- bash agent.sh
shows "one, Make one" "words of the agent" "items of feature_list.json pass"
hides "loop_step" "loop_look" "loop_restore"
