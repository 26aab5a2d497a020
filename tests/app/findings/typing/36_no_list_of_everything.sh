# Misspell a setting, or an account in a home with many sessions.
# before: all settings, and the ids of all accounts, in one line.
# now: the near name, or how many there are and what lists them.
. "$LIB"
ends 2 holdfast config get max_turn
shows "did you mean 'max_turns'?"
ends 2 holdfast config get qqq
shows "\`holdfast config show\` lists them"
[ "$(wc -c < "$SAID")" -lt 250 ] || fail "an error of more than 250 characters"
