#!/usr/bin/env bash
# Processor time per request and per GiB of the L4 relay example, beside a comparison relay.
#
#   benches/relay.sh 'COMPARISON {port} {upstream} …' 'ORIGIN {port}' ['BULK {port} {direction} {bytes}']
#
# Each argument is a command in which the words in braces are replaced by port numbers, `up` or
# `down`, and a number of bytes. COMPARISON relays from 127.0.0.1:{port} to 127.0.0.1:{upstream};
# ORIGIN answers HTTP requests; BULK moves that many bytes one way and ends.
#
# Environment: ENGINE (epoll | io_uring), MODE (copy | splice), REACTORS (1), CONNECTIONS
# ("16 64"), ROUNDS (5), SECONDS_EACH (1), BYTES (1 GiB), RELAY_CORES (1), LOAD_CORES (0),
# USER_ID (run both relays as this user, for the pipe quota; needs root).
#
# The two take turns, in alternating order, and what counts is the median of the ratios of
# neighbouring runs: other work on the machine changes absolute figures more than anything here.
# Needs wrk, taskset, setpriv, awk.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,20p' "$0"; exit 2; }
comparison=$1 origin=$2 bulk=${3:-}
engine=${ENGINE:-epoll} mode=${MODE:-copy} reactors=${REACTORS:-1}
connections=${CONNECTIONS:-16 64} rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-1}
bytes=${BYTES:-1073741824} relay_cores=${RELAY_CORES:-1} load_cores=${LOAD_CORES:-0}
cd "$(dirname "$0")/.."
cargo build --quiet --release -p toron-reactor --example relay
relay=${CARGO_TARGET_DIR:-target}/release/examples/relay
scratch=$(mktemp -d)
# A standard input that does not end: the relay runs until its own does.
mkfifo "$scratch/input"
exec 9<>"$scratch/input"
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$scratch"
}
trap cleanup EXIT

free_port() { # one nobody listens on at present
    local port
    while port=$((20000 + RANDOM % 10000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}
await_port() {
    for _ in $(seq 200); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.02
    done
    echo "nothing listens on port $1" >&2
    exit 1
}
fill() { # fill COMMAND NAME VALUE …
    local text=$1
    shift
    while [ $# -gt 0 ]; do text=${text//\{$1\}/$2}; shift 2; done
    echo "$text"
}
as_user=()
if [ -n "${USER_ID:-}" ]; then
    as_user=(setpriv --reuid "$USER_ID" --clear-groups --inh-caps=-all --bounding-set=-all)
    cp "$relay" "$scratch/relay" && chmod 755 "$scratch" "$scratch/relay" && relay=$scratch/relay
fi
start() { # start CORES COMMAND… : sets $started
    local cores=$1
    shift
    taskset -c "$cores" "$@" <"$scratch/input" >/dev/null 2>&1 &
    started=$!
    pids+=("$started")
}
nanoseconds() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { print sum }'; }

upstream=$(free_port)
read -ra words <<<"$(fill "$origin" port "$upstream")"
start "$load_cores" "${words[@]}"
await_port "$upstream"

declare -A port pid
port[theirs]=$(free_port)
read -ra words <<<"$(fill "$comparison" port "${port[theirs]}" upstream "$upstream")"
start "$relay_cores" "${as_user[@]}" "${words[@]}"
pid[theirs]=$started
await_port "${port[theirs]}"
port[ours]=$(free_port)
start "$relay_cores" "${as_user[@]}" "$relay" --listen "127.0.0.1:${port[ours]}" \
    --upstream "127.0.0.1:$upstream" --engine "$engine" --mode "$mode" --reactors "$reactors"
pid[ours]=$started
await_port "${port[ours]}"

measure() { # measure WHO WHAT: nanoseconds per request, or per transfer
    local before after n=1 words
    before=$(nanoseconds "${pid[$1]}")
    case $2 in
    up | down)
        read -ra words <<<"$(fill "$bulk" port "${port[$1]}" direction "$2" bytes "$bytes")"
        taskset -c "$load_cores" "${words[@]}" >/dev/null
        ;;
    *)
        n=$(taskset -c "$load_cores" wrk -t1 -c"$2" -d"$seconds" "http://127.0.0.1:${port[$1]}/" |
            awk '/requests in/ { print $1 }')
        ;;
    esac
    after=$(nanoseconds "${pid[$1]}")
    awk -v a="$before" -v b="$after" -v n="$n" 'BEGIN { printf "%.0f\n", (b - a) / n }'
}
median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

what=$connections
[ -z "$bulk" ] || what="$what up down"
for round in $(seq "$rounds"); do
    order="ours theirs"
    [ $((round % 2)) -eq 0 ] || order="theirs ours"
    for w in $what; do
        for who in $order; do measure "$who" "$w" >>"$scratch/$who.$w"; done
    done
done
echo "engine $engine, mode $mode, $reactors reactor(s), $rounds rounds: CPU ns per request (up, down: per transfer of $bytes bytes)"
printf '%-10s %14s %14s %8s\n' load ours theirs ratio
for w in $what; do
    ratio=$(paste "$scratch/ours.$w" "$scratch/theirs.$w" | awk '{ print $1 / $2 }' | median)
    printf '%-10s %14.0f %14.0f %8.3f\n' "$w" "$(median <"$scratch/ours.$w")" "$(median <"$scratch/theirs.$w")" "$ratio"
done
