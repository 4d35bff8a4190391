#!/usr/bin/env bash
# make run: builds toron, starts its test origin and toron itself with the files beside this one, and
# prints three commands to try. Ctrl-C stops both.
set -euo pipefail
cd "$(dirname "$0")/.."

origin=127.0.0.1:9000
public=127.0.0.1:8080

cargo build --release
toron="${CARGO_TARGET_DIR:-target}/release/toron"

pids=()
said=$(mktemp -d)
stop() {
  trap '' INT TERM
  for pid in "${pids[@]}"; do
    kill -TERM "$pid" 2>/dev/null || true
  done
  for pid in "${pids[@]}"; do
    wait "$pid" 2>/dev/null || true
  done
  rm -r "$said"
}
trap stop EXIT
# Ctrl-C is how this is meant to end: no failure.
trap 'exit 0' INT TERM

# start NAME ARGUMENTS…: until it says that it listens. What it says is passed on.
start() {
  local name=$1 line
  shift
  mkfifo "$said/$name"
  # In a process group of its own, so that Ctrl-C reaches this script alone and each of the two gets
  # one signal: toron takes a second one for impatience.
  set -m
  "$toron" "$@" 2>"$said/$name" &
  set +m
  pids+=($!)
  exec 3<"$said/$name"
  while IFS= read -r line <&3; do
    printf '%s\n' "$line" >&2
    if [[ $line == *"listening on "* ]]; then
      cat <&3 >&2 &
      exec 3<&-
      return 0
    fi
  done
  echo "error: $name has ended; what it said stands above (is its port taken?)" >&2
  exit 1
}

start origin upstream --listen "$origin"
start toron serve -c configs/config.yaml -r configs/routes.yaml

cat <<END

toron listens on $public, its test origin on $origin. Try in another terminal:

  curl -i http://$public/api/echo -d hello                                     # proxied
  head -c 2000 /dev/zero | curl -i --data-binary @- http://$public/small/discard   # 413, never reaches the origin
  curl -i http://$public/health                                                # toron's own answer

Ctrl-C stops both.
END

# Ends when one of the two ends, or on Ctrl-C.
wait -n "${pids[@]}"
