#!/usr/bin/env bash
# Compares toron (both engines) with Debian's nginx and HAProxy: CPU time of the proxy per request and
# per GiB, requests per second, all on loopback. The proxies run on one core in turn, load and origin
# on another; medians of interleaved rounds. Prints Markdown.
#
# usage: benches/compare.sh [ROUNDS [SECONDS]]      (default 5 rounds of 4 s)
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} seconds=${2:-4}
for tool in nginx haproxy wrk curl taskset; do
    command -v "$tool" >/dev/null || { echo "compare.sh: $tool is missing (apt-get install nginx-light haproxy wrk curl util-linux)" >&2; exit 1; }
done
cargo build --release --quiet
toron=${CARGO_TARGET_DIR:-target}/release/toron
dir=$(mktemp -d) pids=()
cleanup() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; wait 2>/dev/null || true; rm -rf "$dir"; }
trap cleanup EXIT
ulimit -n "$(ulimit -Hn)"
load=0 proxy=1
[ "$(nproc)" -gt 1 ] || proxy=0

free_port() { python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])'; }
origin=$(free_port)
declare -A port pid
taskset -c $load "$toron" upstream --listen 127.0.0.1:$origin --reactors 1 2>/dev/null & pids+=($!)

for engine in epoll io_uring; do
    port[$engine]=$(free_port)
    cat >"$dir/$engine.yaml" <<Y
server: {host: 127.0.0.1, port: ${port[$engine]}, engine: $engine, max_body_bytes: 2GiB}
logging: {level: error, access_log: off}
firewall: {enabled: false}
routes: [{target: "http://127.0.0.1:$origin"}]
Y
    taskset -c $proxy "$toron" serve -c "$dir/$engine.yaml" 2>"$dir/$engine.err" & pid[$engine]=$! pids+=($!)
done
port[nginx]=$(free_port)
cat >"$dir/nginx.conf" <<N
daemon off; worker_processes 1; pid $dir/nginx.pid; error_log $dir/nginx.err;
events { worker_connections 4096; }
http { access_log off; client_max_body_size 0; client_body_temp_path $dir/body; proxy_temp_path $dir/proxy;
 fastcgi_temp_path $dir/f; scgi_temp_path $dir/s; uwsgi_temp_path $dir/u;
 upstream origin { server 127.0.0.1:$origin; keepalive 128; }
 server { listen 127.0.0.1:${port[nginx]} backlog=4096; keepalive_requests 1000000000;
  location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";
   proxy_set_header Host \$http_host; proxy_set_header X-Forwarded-For \$remote_addr;
   proxy_request_buffering off; proxy_max_temp_file_size 0; } } }
N
taskset -c $proxy nginx -c "$dir/nginx.conf" 2>/dev/null & pids+=($!)
port[haproxy]=$(free_port)
cat >"$dir/haproxy.cfg" <<H
global
 maxconn 2048
 nbthread 1
defaults
 mode http
 option splice-auto
 option forwardfor
 timeout connect 10s
 timeout client 60s
 timeout server 60s
 http-reuse always
listen l
 bind 127.0.0.1:${port[haproxy]} backlog 4096
 server o 127.0.0.1:$origin
H
taskset -c $proxy haproxy -f "$dir/haproxy.cfg" -db 2>"$dir/haproxy.err" & pid[haproxy]=$! pids+=($!)
for p in "$origin" "${port[@]}"; do
    for _ in $(seq 100); do curl -s -o /dev/null "http://127.0.0.1:$p/" && break; sleep 0.05; done
done
pid[nginx]=$(pgrep -P "$(cat "$dir/nginx.pid")" | head -n1)

hz=$(getconf CLK_TCK)
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
names=(epoll io_uring nginx haproxy)
# wrk_round NAME COLUMN [ARGS…]: CPU µs per request and requests per second
wrk_round() {
    local name=$1 column=$2; shift 2
    local before after out requests
    before=$(ticks "${pid[$name]}")
    out=$(taskset -c $load wrk -t1 -c64 -d"${seconds}s" "$@" "http://127.0.0.1:${port[$name]}/bytes/1024")
    after=$(ticks "${pid[$name]}")
    if grep -qE 'Socket errors|Non-2xx' <<<"$out"; then echo "compare.sh: $name: $(grep -E 'Socket|Non-2xx' <<<"$out")" >&2; fi
    requests=$(grep -oE '[0-9]+ requests in' <<<"$out" | cut -d' ' -f1)
    awk -v t=$((after - before)) -v hz="$hz" -v r="$requests" 'BEGIN{printf "%.2f\n", t / hz * 1e6 / r}' >>"$dir/$name.$column"
    grep -E '^Requests/sec' <<<"$out" | awk '{print $2}' >>"$dir/$name.$column.rate"
}
gib_round() {
    local name=$1 column=$2 before after; shift 2
    before=$(ticks "${pid[$name]}")
    taskset -c $load "$@" >/dev/null
    after=$(ticks "${pid[$name]}")
    awk -v t=$((after - before)) -v hz="$hz" 'BEGIN{printf "%.2f\n", t / hz}' >>"$dir/$name.$column"
}
truncate -s 1G "$dir/gib"
for _ in $(seq "$rounds"); do
    for name in "${names[@]}"; do wrk_round "$name" keep; done
    for name in "${names[@]}"; do wrk_round "$name" close -H 'Connection: close'; done
    for name in "${names[@]}"; do
        gib_round "$name" up curl -sS -f -o /dev/null -H 'Expect:' -T "$dir/gib" "http://127.0.0.1:${port[$name]}/discard"
        gib_round "$name" down curl -sS -f -o /dev/null "http://127.0.0.1:${port[$name]}/bytes/1073741824"
    done
done
median() { sort -n "$1" | awk '{v[NR]=$1} END{print (NR % 2) ? v[(NR+1)/2] : (v[NR/2] + v[NR/2+1]) / 2}'; }
echo "| $(date -u +%F), kernel $(uname -r), $(nproc) cores | CPU µs/request | requests/s | new connection per request, CPU µs | 1 GiB up, CPU s | 1 GiB down, CPU s |"
echo "| --- | --- | --- | --- | --- | --- |"
row() {
    local name=$1 title=$2
    printf '| %s | %.1f | %.0f | %.1f | %.2f | %.2f |\n' "$title" "$(median "$dir/$name.keep")" "$(median "$dir/$name.keep.rate")" \
        "$(median "$dir/$name.close")" "$(median "$dir/$name.up")" "$(median "$dir/$name.down")"
}
row io_uring "toron, io_uring"
row epoll "toron, epoll"
row nginx "nginx $(nginx -v 2>&1 | grep -oE '[0-9]+\.[0-9]+\.[0-9]+')"
row haproxy "HAProxy $(haproxy -v | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n1)"
