# The process of a run was stopped, or killed; what do the lists say in the morning?
# before: under RUNNING, as "nobody runs it now", without a command.
# now: under NEEDS YOU, with the command that resumes it, which works after a kill too.
. "$LIB"
model '{"text": "Done.", "delay_s": 8}'
begin() {
  holdfast "$@" > out 2>&1 < /dev/null &
  run=$!
}
begin run "Wait." --scratch --model scripted:m.json --session-id dead --no-sandbox
await span.model_request_start holdfast logs dead
kill -TERM $run
wait $run || true
ends 0 holdfast inbox --plain
shows "NEEDS YOU (1)" "holdfast wake dead"
begin wake dead
await "shift 2" holdfast logs dead
kill -9 $run 2> /dev/null || true
wait $run 2> /dev/null || true
ends 0 holdfast wake dead
shows "dead is done"
