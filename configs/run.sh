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
stop() {
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do
    kill -TERM "$pid" 2>/dev/null || true
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || true
  done
}
trap stop EXIT
trap 'exit 0' INT TERM

# await PID NAME URL: until URL is answered, for ten seconds at most.
await() {
  for _ in $(seq 100); do
    if curl -s -o /dev/null --max-time 1 "$3"; then
      # Another program on that port would answer as well.
      kill -0 "$1" 2>/dev/null && return 0
    fi
    if ! kill -0 "$1" 2>/dev/null; then
      echo "error: $2 has ended; what it said stands above (is its port taken?)" >&2
      exit 1
    fi
    sleep 0.1
  done
  echo "error: $2 does not answer at $3" >&2
  exit 1
}

"$toron" upstream --listen "$origin" &
pids+=($!)
await "${pids[0]}" "the test origin" "http://$origin/status/200"

"$toron" serve -c configs/config.yaml -r configs/routes.yaml &
pids+=($!)
await "${pids[1]}" "toron" "http://$public/health"

cat <<END

toron listens on $public, its test origin on $origin. Try in another terminal:

  curl -i http://$public/api/echo -d hello                                     # proxied
  head -c 2000 /dev/zero | curl -i --data-binary @- http://$public/small/discard   # 413, never reaches the origin
  curl -i http://$public/health                                                # toron's own answer

Ctrl-C stops both.
END

# Ends when one of the two ends, or on Ctrl-C.
wait -n "${pids[@]}"
