# The key was wrong; the user sets another one and types what the error says.
# before: `wake` printed the same failure again and asked nobody.
# now: `wake` makes the request again.
. "$LIB"
server "$PORT" good > /dev/null 2>&1 &
trap "kill $!" EXIT
await refused bash -c "exec 3<>/dev/tcp/127.0.0.1/$PORT && echo not refused"
at="--base-url http://127.0.0.1:$PORT/v1"
OPENAI_API_KEY=bad ends 1 holdfast run "Say hello." --scratch --model openai-chat:gpt-4o $at --session-id key
shows "set OPENAI_API_KEY" "holdfast wake key"
OPENAI_API_KEY=good ends 0 holdfast wake key
shows "Hello." "key is done"
