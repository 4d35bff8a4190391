# Sourced by the demonstrations beside this file, which run in a network and process namespace of
# their own: the settings they change are the namespace's, and all their processes end with it.
#
# TORON names the program (default: the release build of this tree, else the one in PATH), ENGINE its
# engine (auto, io_uring, epoll). Further arguments go to toron tune, whose later options win:
#   configs/tune/accept-queue.sh --rounds 20 --seconds 1 --json out.json
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

fail() { echo "${0##*/}: $1" >&2; exit 1; }

# Outside: makes the folder and the namespaces, and cleans up after them, whatever happens inside.
outside() {
  local toron=${TORON:-} root
  root=$(cd "$(dirname "$0")/../.." && pwd)
  : "${toron:=${CARGO_TARGET_DIR:-$root/target}/release/toron}"
  [ -x "$toron" ] || toron=$(command -v toron) || fail "there is no toron (make build, or TORON=…)"
  dir=$(mktemp -d) child=
  trap cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # Other users run it and read its configuration.
  chmod 755 "$dir"
  install -m 755 "$toron" "$dir/toron"
  local map=()
  [ "$EUID" -eq 0 ] || map=(--map-root-user)
  # Both are awaited in the background, so that a signal is seen at once.
  DEMONSTRATION=$dir unshare "${map[@]}" --net --pid --fork --kill-child --mount-proc \
    bash "$0" "$@" </dev/null &
  child=$!
  local status=0
  wait "$child" || status=$?
  child=
  exit "$status"
}

cleanup() {
  # With unshare all that it started ends.
  [ -z "$child" ] || { kill -KILL "$child" && wait "$child"; } 2>/dev/null || true
  # Left behind only where toron tune could not end in order. It may take a moment to die, and holds
  # the journal until then.
  local undone=
  for _ in $(seq 100); do
    [ -e "$dir/journal" ] || break
    undone=$("$dir/toron" tune --undo --yes --journal "$dir/journal" 2>&1) || sleep 0.1
  done
  if [ -e "$dir/journal" ]; then
    echo "$undone" >&2
    fail "not all is restored: $dir/toron tune --undo --journal $dir/journal"
  fi
  rm -rf "$dir"
}

[ -n "${DEMONSTRATION:-}" ] || outside "$@"

# Inside, from here on.
dir=$DEMONSTRATION
cd "$dir"
ip link set lo up

await() { # await FILE WORDS: until a process has said so
  for _ in $(seq 300); do
    grep -qs "$2" "$1" && return
    sleep 0.1
  done
  cat "$1" >&2
  fail "\"$2\" did not come"
}

# configure LINE…: toron's configuration; the firewall is opened for a load from one address.
configure() {
  local clients=$1
  shift
  printf '%s\n' "server: {listen: [\"127.0.0.1:8080\"], engine: ${ENGINE:-auto}}" \
    "firewall: {max_connections_total: $clients, max_connections_per_ip: $clients, \
rate_limit_rps: 1000000, rate_limit_burst: 1000000}" "$@" >config.yaml
}

origin() {
  ./toron upstream --listen 127.0.0.1:9000 >origin.log 2>&1 &
  await origin.log "listening on"
}

# start [PREFIX…]: writes what starts toron anew (run by PREFIX, setpriv for example), and runs it.
start() {
  cat >restart.sh <<R
cd "$dir"
if [ -e pid ]; then
  old=\$(cat pid)
  if [ -e before-restart.sh ]; then . ./before-restart.sh; fi
  kill -TERM "\$old"
  while grep -qs '^State:.[^Z]' "/proc/\$old/status"; do sleep 0.02; done
fi
$* ./toron serve -c config.yaml >>log 2>&1 </dev/null &
echo \$! >pid
R
  sh restart.sh
  await log "listening on"
}

# tune ARGUMENTS…: with a report, and without a question.
tune() { ./toron tune -c config.yaml --yes --journal journal --pid-file pid "$@"; }
