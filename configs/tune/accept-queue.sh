#!/usr/bin/env bash
# net.core.somaxconn: a queue of one connection overflows whenever toron does not get a processor for
# a millisecond or two; clients that find it full try again after a second. Each request comes on a new
# connection here, eight hundred a second at random moments.
. "$(dirname "$0")/lib.sh"

sysctl -qw net.core.somaxconn=1
configure 10000 'routes: [{prefix: /, status: 200, body: ok}]'
start
tune --measure http://127.0.0.1:8080/ --only net.core.somaxconn --restart 'sh restart.sh' \
  --keep-alive 0 --rate 800 --arrivals poisson --connections 400 --seconds 1 --rounds 12 "$@"
