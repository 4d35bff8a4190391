//! Every key of both files at once.

use super::load_texts;
use crate::control::resolve::Endpoints;

const EVERY_KEY: &str = "\
server:
  port: 0
  listen: [127.0.0.1]
  worker_pool_size: 2
  engine: epoll
  read_timeout: 5s
  write_timeout: 5s
  idle_timeout: 30s
  upgrade_idle_timeout: 60s
  max_header_bytes: 8192
  max_body_bytes: 4MiB
  min_progress_bytes: 1024
  header_deadline: -1
  inbound_chunked_mode: normalize
  buffer_memory: 256MiB
  shutdown_grace: 30s
  drain_delay: 0s
  proxy_protocol: off
  via: off
  explain_header: off
  watch: off
proxy:
  transport:
    connect_timeout: 10s
    response_header_timeout: 10s
    upstream_idle_timeout: 60s
    max_idle_per_target: 100
    idle_conn_timeout: 30s
    dns_refresh: 30s
    inbound_chunked_mode: normalize
firewall:
  enabled: true
  mode: enforce
  rate_limit_rps: 100
  rate_limit_burst: 200
  adaptive_rate_limit: false
  ewma_alpha_pct: 20
  trusted_proxies: []
  client_ip_header: X-Forwarded-For
  auto_block_threshold: 10
  block_duration: 300s
  block_escalation_factor: 2
  max_block_duration: 3600s
  strike_decay: 3600s
  max_connections_per_ip: 50
  max_connections_total: 10000
  max_tracked_addresses: 200000
  ipv6_prefix: 64
  header_timeout: 10s
  body_timeout: 30s
  min_body_rate: 100
  max_header_count: 100
  max_header_bytes: 16384
  allow: []
  deny: []
discovery:
  enabled: true
  engine: auto
  socket_path: auto
  poll_interval: 10s
  default_weight: 1
  network: \"\"
admin:
  key: secret
  subnets: [127.0.0.1/32, \"::1/128\"]
  listen: 127.0.0.1:9901
logging:
  level: info
  format: json
  access_log: stdout
  error_log: error.log
";

const EVERY_ROUTE_KEY: &str = "\
routes:
  - &full
    type: upstream
    host: example.com
    prefix: /
    method: [GET, POST]
    headers: {X-Tier: beta}
    target: http://127.0.0.1:9000
    algorithm: least_conn
    target_max_concurrency: 5
    retries: 1
    health_check_path: /healthz
    health_check_interval: 5s
    health_check_timeout: 2s
    consecutive_failures: 3
    cooldown_period: 10s
    passive_statuses: [502, 503]
    when_all_down: try
    strip_prefix: on
    rewrite_redirects: on
    rewrite_cookie_path: on
    preserve_host: on
    max_body_bytes: 1MiB
    max_concurrency: 5
    read_timeout: 5s
    write_timeout: 5s
    min_progress_bytes: 1024
    min_body_rate: 100
    body_timeout: 30s
    response_header_timeout: 10s
    upstream_idle_timeout: 60s
    client_half_close: abort
    header_deadline: 5s
    header_deadline_response: {status: 504, headers: {Retry-After: 1}, body: late}
    request_deadline: 60s
    request_deadline_covers_upgrades: true
    upgrade_idle_timeout: 60s
    stream_request_body: true
    inbound_chunked_mode: passthrough
  - {<<: *full, prefix: /a, algorithm: random}
  - {<<: *full, prefix: /b, algorithm: ip_hash}
  - {prefix: /c, status: 200, headers: {X-A: b}, body: text}
";

#[test]
fn every_key_is_read_without_a_fault_or_a_warning() {
    let made = load_texts(EVERY_KEY, Some(EVERY_ROUTE_KEY), &mut Endpoints::default());
    let warnings = match made {
        Ok(loaded) => loaded.warnings,
        Err(rejected) => unreachable!("{:?}", rejected.faults),
    };
    assert_eq!(warnings, []);
}
