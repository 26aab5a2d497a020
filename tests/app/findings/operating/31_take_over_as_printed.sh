# Root runs an agent in a repository of root's, and types what the error proposes.
# before: it proposed "--take-over", which was then refused without --workspace.
# now: it proposes both, and they work.
. "$LIB"
[ "$(id -u)" = 0 ] || exit 0  # an ordinary user is never asked for this
git init -q repo
model "$(bash_call "echo hello > note.txt")" "$(says Done.)"
cd repo
ends 5 holdfast run "Write." --model scripted:../m.json --no-sandbox
shows "--workspace $PWD --take-over"
ends 0 holdfast run "Write." --model scripted:../m.json --no-sandbox --workspace "$PWD" --take-over
[ "$(cat note.txt)" = hello ]
