#!/usr/bin/env bash
# Three replicas of one service: toron makes one pool of them and takes them in turn.
#   ENGINE=podman configs/discovery/replicas.sh     (docker unless said otherwise)
#   curl -H 'Host: app.example.com' http://127.0.0.1:8080/service
set -euo pipefail
engine=${ENGINE:-docker}

for n in 1 2 3; do
  $engine run -d \
    --name "web-app-$n" \
    --label "toron.enable=true" \
    --label "toron.host=app.example.com" \
    --label "toron.prefix=/service" \
    --label "toron.port=8080" \
    --label "toron.health_check=/healthz" \
    --label "toron.health_check_interval=5s" \
    my-web-service:v1.0
done
