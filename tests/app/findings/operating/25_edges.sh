# A full output, a plain locale, a dead proxy, and a change to a session that is done.
# before: "Exception ignored in", \u2192, "check that the server is up", and "goes on in the background".
# now: one sentence each, and a done session stays done.
. "$LIB"
model "$(says Done.)"
ends 0 holdfast run "One." --scratch --model scripted:m.json --session-id one --no-sandbox
status=0; holdfast logs one > /dev/full 2> "$SAID" || status=$?
[ "$status" = 5 ] || fail "status $status"
shows "No space left on device"
hides "Exception"
HTTPS_PROXY=http://127.0.0.1:9 OPENAI_API_KEY=k ends 1 holdfast init --model openai-chat:gpt-4o
shows "HTTPS_PROXY=http://127.0.0.1:9" "check that this proxy is running"
ends 0 holdfast egress one --allow api.example.com
shows "one is done" "holdfast send one"
hides "in the background"
ends 0 holdfast ps is:done
hides "none of"
