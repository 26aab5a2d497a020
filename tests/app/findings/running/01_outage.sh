# A run at night meets a server that is down.
# before: it gave up after 9 seconds, and nothing woke it.
# now: it waits, says until when, and finishes when the server is back.
. "$LIB"
export OPENAI_COMPATIBLE_API_KEY=k
holdfast run "Say hello." --scratch --model openai-compatible:m --base-url "http://127.0.0.1:$PORT/v1" --wait 2m \
  --session-id night > out 2>&1 < /dev/null &
run=$!
await "cannot connect" cat out
server "$PORT" k > /dev/null 2>&1 &
trap "kill $!" EXIT
wait "$run"
ends 0 cat out
shows "Hello." "night is done"
