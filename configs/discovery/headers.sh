#!/usr/bin/env bash
# Several header conditions in one label, as a JSON object or as name=value pairs.
#   curl -H 'Host: mgmt.example.com' -H 'X-Role: admin' -H 'X-Env: production' http://127.0.0.1:8080/tools
#   curl -H 'Host: app.example.com' -H 'X-Feature: new-ui' -H 'X-Group: beta-testers' http://127.0.0.1:8080/beta
set -euo pipefail
engine=${ENGINE:-docker}

$engine run -d \
  --name admin-tool \
  --label "toron.enable=true" \
  --label "toron.host=mgmt.example.com" \
  --label "toron.prefix=/tools" \
  --label "toron.headers={\"X-Role\":\"admin\",\"X-Env\":\"production\"}" \
  --label "toron.port=7000" \
  admin-dashboard:latest

$engine run -d \
  --name beta-tester \
  --label "toron.enable=true" \
  --label "toron.host=app.example.com" \
  --label "toron.prefix=/beta" \
  --label "toron.headers=X-Feature=new-ui,X-Group=beta-testers" \
  --label "toron.port=8080" \
  ui-beta:latest
