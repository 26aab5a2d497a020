# Back up to a disk that is full.
# before: "the disk under .../holdfast.db is full ... `holdfast wake` the session", which is another disk and no help.
# now: the disk of the backup is named; the full disk of a home says to type the command again.
. "$LIB"
model "$(says Done.)"
ends 0 holdfast run "One." --scratch --model scripted:m.json --session-id one --no-sandbox
mkdir small
if mount -t tmpfs -o size=100k tmpfs small 2> /dev/null; then
  trap "umount $PWD/small" EXIT
  ends 5 holdfast backup small/night.tar
  shows "the disk of $PWD/small is full" "no backup was written"
  [ -z "$(ls -A small)" ]
  ends 5 holdfast --home small/home run "Two." --scratch --model scripted:m.json --no-sandbox
  shows "then type the command again"
fi
ends 0 holdfast backup night.tar
