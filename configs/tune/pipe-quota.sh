#!/usr/bin/env bash
# fs.pipe-user-pages-soft: toron moves large bodies through pipes, without copying them, as long as its
# user may have pipes of full size. Here something else of the same user holds the whole quota (fifos,
# which are pipes), so toron has to copy. Root is exempt from the quota, so toron runs as another user.
# The setting is of the whole machine: it is raised meanwhile, and put back.
#
# At the end: how many pipes toron had kept for the next body, by the quota that it ran with.
if [ -z "${DEMONSTRATION:-}" ] && [ "$EUID" -ne 0 ]; then
  echo "pipe-quota.sh: needs root, to run toron as another user and to raise the quota" >&2
  exit 1
fi
. "$(dirname "$0")/lib.sh"

user=64321
as="setpriv --reuid=$user --regid=$user --clear-groups"
quota=$(sysctl -n fs.pipe-user-pages-soft)
[ "$quota" -gt 0 ] || fail "there is no quota (fs.pipe-user-pages-soft is 0)"
ulimit -n "$(ulimit -Hn)"

# 16 pages each.
fifos=$((quota / 16 + 8))
[ "$(ulimit -n)" -gt $((fifos + 64)) ] || fail "the quota is $quota pages: too many to be used up"
mkdir -m 777 fifos
$as bash -euc "cd fifos
  mkfifo \$(seq $fifos)
  for n in *; do exec {held}<>\$n; done
  echo all are held
  exec sleep infinity" >held.log 2>&1 &
await held.log "all are held"

configure $((quota / 8)) 'routes: [{prefix: /, target: "http://127.0.0.1:9000"}]'
# Pipes with both ends in the process.
cat >before-restart.sh <<'R'
pipes=$(ls -l "/proc/$old/fd" | grep -o 'pipe:.*' | sort | uniq -d | wc -l)
echo "$(cat ran-with): $pipes" >>kept
R
origin
start "cat /proc/sys/fs/pipe-user-pages-soft >ran-with; $as"
tune --measure http://127.0.0.1:8080/bytes/4194304 --only fs.pipe-user-pages-soft \
  --restart 'sh restart.sh' --rate 40 --connections 8 --seconds 1 "$@"
echo "pipes kept, by quota:"
# The first one has had no load.
sed 1d kept | sort | uniq -c
