#!/usr/bin/env bash
# toron bench beside wrk, against the test origin on loopback: throughput and CPU of the generator in a
# closed loop, and how an open loop at a given rate fares. The generators run on one core in turn, the
# origin on another; medians of interleaved rounds. Prints Markdown.
#
# usage: benches/load.sh [ROUNDS [SECONDS [RATE]]]      (default 5 rounds of 4 s, 20000 per second)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-4} rate=${3:-20000} connections=64
for tool in wrk taskset python3; do
    command -v "$tool" >/dev/null || { echo "load.sh: $tool is missing (apt-get install wrk util-linux python3)" >&2; exit 1; }
done
cargo build --release --quiet
toron=${CARGO_TARGET_DIR:-target}/release/toron
dir=$(mktemp -d) origin_pid=
cleanup() { [ -z "$origin_pid" ] || kill "$origin_pid" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"; }
trap cleanup EXIT
load=0 server=1
[ "$(nproc)" -gt 1 ] || server=0
taskset -c $server "$toron" upstream --listen 127.0.0.1:0 --reactors 1 2>"$dir/origin" & origin_pid=$!
for _ in $(seq 100); do grep -q listening "$dir/origin" && break; sleep 0.05; done
url=http://$(grep -oE '[0-9.]+:[0-9]+' "$dir/origin" | head -n1)/bytes/1024

# Seconds of processor time of a command, on the generators' core; its output goes to $dir/out.
timed() {
    local TIMEFORMAT='%U %S'
    { time taskset -c $load "$@" >"$dir/out" 2>"$dir/err"; } 2>"$dir/time"
    awk '{print $1 + $2}' "$dir/time"
}
field() { python3 -c 'import json,sys; v=json.load(open(sys.argv[1]))
for k in sys.argv[2].split("."): v=v[k]
print(v)' "$dir/out" "$1"; }
closed() { # closed NAME RATE REQUESTS CPU
    echo "$2" >>"$dir/$1.rate"
    awk -v c="$4" -v n="$3" 'BEGIN{printf "%.2f\n", c / n * 1e6}' >>"$dir/$1.cpu"
}
for _ in $(seq "$rounds"); do
    cpu=$(timed wrk -t1 -c$connections -d"${seconds}s" "$url")
    closed wrk "$(awk '/^Requests\/sec/{print $2}' "$dir/out")" "$(grep -oE '[0-9]+ requests in' "$dir/out" | cut -d' ' -f1)" "$cpu"
    for engine in epoll io_uring; do
        cpu=$(timed "$toron" bench "$url" --closed --connections $connections --threads 1 --warmup 0s --duration "${seconds}s" --engine $engine --json)
        closed $engine "$(field requests_per_s)" "$(field requests.answered)" "$cpu"
        cpu=$(timed "$toron" bench "$url" --rate "$rate" --connections $connections --threads 1 --warmup 0s --duration "${seconds}s" --engine $engine --json)
        field latency_us.p50 >>"$dir/$engine.p50"
        field latency_us.p99 >>"$dir/$engine.p99"
        field requests_per_s >>"$dir/$engine.open"
        field generator.verdict >>"$dir/$engine.verdict"
        awk -v c="$cpu" -v n="$(field requests.answered)" 'BEGIN{printf "%.2f\n", c / n * 1e6}' >>"$dir/$engine.opencpu"
    done
done
median() { sort -n "$1" | awk '{v[NR]=$1} END{print (NR % 2) ? v[(NR+1)/2] : (v[NR/2] + v[NR/2+1]) / 2}'; }
echo "| closed loop, $connections connections; $(date -u +%F), kernel $(uname -r), $(nproc) cores | requests/s | generator CPU µs/request |"
echo "| --- | --- | --- |"
for name in wrk epoll io_uring; do
    title=$name; [ $name = wrk ] || title="toron bench, $name"
    printf '| %s | %.0f | %.2f |\n' "$title" "$(median "$dir/$name.rate")" "$(median "$dir/$name.cpu")"
done
echo
echo "| open loop, $rate/s | answered/s | p50 µs | p99 µs | generator CPU µs/request | verdicts |"
echo "| --- | --- | --- | --- | --- | --- |"
for name in epoll io_uring; do
    verdicts=$(sort "$dir/$name.verdict" | uniq -c | awk '{printf "%s%s %s", s, $1, $2; s=", "}')
    printf '| toron bench, %s | %.0f | %.0f | %.0f | %.2f | %s |\n' "$name" "$(median "$dir/$name.open")" "$(median "$dir/$name.p50")" \
        "$(median "$dir/$name.p99")" "$(median "$dir/$name.opencpu")" "$verdicts"
done
