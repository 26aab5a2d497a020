# Approve the session that asks, by its name.
# before: "no inbox item 'rel'", which does not say what to type.
# now: the error names the item of the session, which works.
. "$LIB"
model "$(bash_call "echo pushed")" "$(says Pushed.)"
ends 3 holdfast run "Push." --scratch --model scripted:m.json --ask bash --session-id rel --no-sandbox
ends 2 holdfast approve rel
shows "'rel' is a session; name its inbox item instead: itm_"
item=$(grep -o "itm_[a-z0-9]*" "$SAID")
ends 0 holdfast approve "$item" --no-wake
ends 2 holdfast approve nobody
shows "no inbox item 'nobody'"
