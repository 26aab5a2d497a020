# Run an agent on the repository that you stand in.
# before: without --workspace it worked in a new folder in the home.
# now: it works at the top of the repository; elsewhere it says what to add.
. "$LIB"
model "$(bash_call "echo hello > note.txt")" "$(says Done.)"
ends 2 holdfast run "Write a note." --model scripted:m.json
shows "not in a git repository" "--workspace ." "--scratch"
git init -q repo
mkdir repo/deep
[ -z "$MINE" ] || chown 61234 repo repo/deep  # root never works in its own folders
cd repo/deep
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' \
  ends 0 holdfast run "Write a note." --model scripted:../../m.json --no-sandbox
[ "$(cat ../note.txt)" = hello ]
