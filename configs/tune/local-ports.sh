#!/usr/bin/env bash
# net.ipv4.ip_local_port_range: toron keeps no idle connections here, so each request takes a new local
# port to the upstream, which is not free again for a second (on loopback; a minute elsewhere). Fifty
# ports are gone at once, and requests are answered with 503.
. "$(dirname "$0")/lib.sh"

sysctl -qw net.ipv4.ip_local_port_range='61000 61049'
configure 2000 'proxy: {transport: {idle_conn_timeout: 0s}}' \
  'routes: [{prefix: /, target: "http://127.0.0.1:9000"}]'
origin
start
tune --measure http://127.0.0.1:8080/bytes/100 --only net.ipv4.ip_local_port_range \
  --rate 300 --connections 20 --seconds 1 "$@"
