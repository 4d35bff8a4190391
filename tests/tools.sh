#!/usr/bin/env bash
# Makes sure that the programs used by the tests are there: on Debian by installing them, elsewhere
# by saying what is missing.
#
# usage: tests/tools.sh [PROGRAM ...]    these instead (Debian's packages of the same names)
set -euo pipefail

asked=("$@")

# Debian puts nginx where only root's PATH looks.
PATH="$PATH:/usr/sbin:/sbin"

need() { # need PROGRAM PACKAGE
  command -v "$1" >/dev/null || packages+=("$2")
}
look() {
  packages=()
  if [ ${#asked[@]} -gt 0 ]; then
    for program in "${asked[@]}"; do need "$program" "$program"; done
    return
  fi
  need nginx nginx-light
  need wrk wrk
  need haproxy haproxy
  need curl curl
  need sha256sum coreutils
  need unshare util-linux
  need sysctl procps
  need ip iproute2
  need ethtool ethtool
  # The one that the tests run, whatever else PATH has: Debian's packages are for it alone.
  /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null || packages+=(python3-prometheus-client)
  # A container engine and what its images are made of. netavark is not in PATH.
  need podman podman
  need runc runc
  need conmon conmon
  [ -x /usr/lib/podman/netavark ] || [ -x /usr/libexec/podman/netavark ] || packages+=(netavark)
  [ -x /usr/lib/podman/aardvark-dns ] || [ -x /usr/libexec/podman/aardvark-dns ] \
    || packages+=(aardvark-dns)
  need iptables iptables
  need busybox busybox-static
  need strip binutils
}
look

if [ ${#packages[@]} -eq 0 ]; then
  exit 0
fi

fail() {
  echo "error: ${packages[*]} (Debian packages) must be there, and $1" >&2
  exit 1
}

command -v apt-get >/dev/null || fail "there is no apt-get to install them with"
run=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail "only root can install them here"
  run=(sudo)
fi
echo "installing ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
"${run[@]}" apt-get update -q </dev/null || fail "apt-get update failed"
"${run[@]}" apt-get install -y -q --no-install-recommends "${packages[@]}" </dev/null \
  || fail "apt-get install failed"
look
[ ${#packages[@]} -eq 0 ] || fail "they are not there although they were installed"
