# A loop asked whether to go on, the agent was mended, and the user approves.
# before: the session stayed runnable, and no process ran it.
# now: it goes on in the background, and the loop finishes.
. "$LIB"
mkdir app
echo '[{"id": "one", "description": "Make one", "check": "test -e one", "passes": false}]' > app/feature_list.json
echo 'echo tried' > app/agent.sh
ends 3 holdfast loop --session-id lp --workspace app $MINE --max-iterations 9 -- bash agent.sh
shows "changed nothing" "holdfast approve itm_"
ends 0 holdfast brief lp
shows "the loop goes on" "the loop ends as failed"
echo 'touch one' > app/agent.sh
ends 0 holdfast approve itm_
shows "goes on in the background"
ends 0 holdfast attach lp
shows "lp is done"
