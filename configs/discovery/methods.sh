#!/usr/bin/env bash
# Reads go to one container, writes to another.
#   curl -H 'Host: orders.example.com' http://127.0.0.1:8080/orders
#   curl -H 'Host: orders.example.com' -d item=1 http://127.0.0.1:8080/orders
set -euo pipefail
engine=${ENGINE:-docker}

$engine run -d \
  --name order-query-service \
  --label "toron.enable=true" \
  --label "toron.host=orders.example.com" \
  --label "toron.prefix=/orders" \
  --label "toron.method=GET" \
  --label "toron.port=8080" \
  order-read:latest

# Several methods are separated by commas: toron.method=POST,PUT
$engine run -d \
  --name order-command-service \
  --label "toron.enable=true" \
  --label "toron.host=orders.example.com" \
  --label "toron.prefix=/orders" \
  --label "toron.method=POST" \
  --label "toron.port=8081" \
  order-write:latest
