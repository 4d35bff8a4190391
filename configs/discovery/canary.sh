#!/usr/bin/env bash
# A baseline of two containers, and a canary that only requests with a header reach.
#   curl -H 'Host: checkout.example.com' http://127.0.0.1:8080/pay/process
#   curl -H 'Host: checkout.example.com' -H 'X-Version: canary' http://127.0.0.1:8080/pay/process
set -euo pipefail
engine=${ENGINE:-docker}

# 1. Baseline (production v1.0)
for n in 1 2; do
  $engine run -d \
    --name "payment-base-$n" \
    --label "toron.enable=true" \
    --label "toron.host=checkout.example.com" \
    --label "toron.prefix=/pay" \
    --label "toron.port=9000" \
    payment-service:v1.0
done

# 2. Canary (experimental v2.0)
$engine run -d \
  --name payment-canary \
  --label "toron.enable=true" \
  --label "toron.host=checkout.example.com" \
  --label "toron.prefix=/pay" \
  --label "toron.port=9000" \
  --label "toron.header.X-Version=canary" \
  payment-service:v2.0
