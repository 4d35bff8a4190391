//! The bracketed end of a fault: what is allowed, and what was probably meant.

/// Lists longer than this are cut to the words that come nearest.
const SHORT: usize = 8;
/// Words of a long list that are shown.
const NEAREST: usize = 4;

/// Names that other programs give to what toron calls otherwise, by section (as in
/// [`Section::name`](super::section::Section::name)); several words are all that may be meant.
const FOREIGN: &[(&str, &str, &[&str])] = &[
    ("", "host", &["server.host"]),
    ("", "port", &["server.port"]),
    ("", "listen", &["server.listen"]),
    ("", "workers", &["server.worker_pool_size"]),
    ("", "transport", &["proxy.transport"]),
    ("", "log", &["logging"]),
    ("", "logs", &["logging"]),
    ("", "access_log", &["logging.access_log"]),
    ("", "error_log", &["logging.error_log"]),
    ("server", "address", &["host", "listen"]),
    ("server", "bind", &["host", "listen"]),
    ("server", "listen_port", &["port"]),
    ("server", "workers", &["worker_pool_size"]),
    ("server", "worker_processes", &["worker_pool_size"]),
    ("server", "threads", &["worker_pool_size"]),
    ("server", "nbthread", &["worker_pool_size"]),
    ("server", "body_limit", &["max_body_bytes"]),
    ("server", "client_max_body_size", &["max_body_bytes"]),
    ("server", "max_body_size", &["max_body_bytes"]),
    ("server", "keepalive_timeout", &["idle_timeout"]),
    ("server", "keep_alive_timeout", &["idle_timeout"]),
    ("server", "client_body_timeout", &["read_timeout"]),
    ("server", "client_header_timeout", &["read_timeout"]),
    ("server", "send_timeout", &["write_timeout"]),
    (
        "server",
        "timeout",
        &["read_timeout", "write_timeout", "idle_timeout"],
    ),
    ("server", "grace_period", &["shutdown_grace"]),
    ("server", "shutdown_timeout", &["shutdown_grace"]),
    ("server", "access_log", &["logging.access_log"]),
    ("server", "log_level", &["logging.level"]),
    (
        "proxy.transport",
        "timeout",
        &[
            "connect_timeout",
            "response_header_timeout",
            "upstream_idle_timeout",
        ],
    ),
    ("proxy.transport", "dial_timeout", &["connect_timeout"]),
    ("proxy.transport", "keepalive", &["max_idle_per_target"]),
    (
        "proxy.transport",
        "keepalive_timeout",
        &["idle_conn_timeout"],
    ),
    ("logging", "access", &["access_log"]),
    ("logging", "error", &["error_log"]),
    ("logging", "file", &["error_log", "access_log"]),
    ("logging", "path", &["error_log", "access_log"]),
    ("logging", "log_level", &["level"]),
    ("routes[]", "path", &["prefix"]),
    ("routes[]", "paths", &["prefix"]),
    ("routes[]", "location", &["prefix"]),
    ("routes[]", "path_prefix", &["prefix"]),
    (
        "routes[]",
        "match",
        &["prefix", "host", "method", "headers"],
    ),
    ("routes[]", "methods", &["method"]),
    ("routes[]", "hosts", &["host"]),
    ("routes[]", "server_name", &["host"]),
    ("routes[]", "domain", &["host"]),
    ("routes[]", "backend", &["target"]),
    ("routes[]", "backends", &["targets"]),
    ("routes[]", "upstream", &["target"]),
    ("routes[]", "upstreams", &["targets"]),
    ("routes[]", "servers", &["targets"]),
    ("routes[]", "proxy_pass", &["target"]),
    ("routes[]", "url", &["target"]),
    ("routes[]", "weight", &["targets: [{url: …, weight: …}]"]),
    ("routes[]", "balance", &["algorithm"]),
    ("routes[]", "lb_policy", &["algorithm"]),
    ("routes[]", "load_balancing", &["algorithm"]),
    ("routes[]", "strip_path", &["strip_prefix"]),
    ("routes[]", "body_limit", &["max_body_bytes"]),
    ("routes[]", "client_max_body_size", &["max_body_bytes"]),
    ("routes[]", "max_body_size", &["max_body_bytes"]),
    ("routes[]", "max_connections", &["max_concurrency"]),
    ("routes[]", "concurrency", &["max_concurrency"]),
    ("routes[]", "code", &["status"]),
    ("routes[]", "return", &["status"]),
    ("routes[]", "response", &["status", "headers", "body"]),
    ("routes[]", "respond", &["status", "headers", "body"]),
    ("routes[]", "health_check", &["health_check_path"]),
    (
        "routes[]",
        "connect_timeout",
        &["proxy.transport.connect_timeout"],
    ),
    (
        "routes[]",
        "proxy_read_timeout",
        &["response_header_timeout", "upstream_idle_timeout"],
    ),
    (
        "routes[]",
        "timeout",
        &[
            "response_header_timeout",
            "read_timeout",
            "request_deadline",
        ],
    ),
    ("targets[]", "target", &["url"]),
    ("targets[]", "address", &["url"]),
];

/// The word of `known` that `word` most likely stands for.
#[must_use]
pub fn did_you_mean<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word = word.to_ascii_lowercase();
    let near = |k: &&&str| {
        let edits = strsim::osa_distance(&word, k);
        edits <= 2.max(k.len() / 4) && edits < k.len() && likeness(&word, k) > 0.75
    };
    known
        .iter()
        .filter(near)
        .max_by(|a, b| likeness(&word, a).total_cmp(&likeness(&word, b)))
        .copied()
}

fn likeness(word: &str, known: &str) -> f64 {
    strsim::jaro_winkler(word, known)
}

/// What is allowed and, if anything comes near, what was meant.
#[must_use]
pub fn allowed(word: &str, known: &[&str]) -> String {
    let meant: Vec<&str> = did_you_mean(word, known).into_iter().collect();
    bracket(&known.join(", "), &meant)
}

/// What keys are allowed in `section`, the nearest few if there are many, and which was meant.
#[must_use]
pub fn allowed_keys(word: &str, section: &str, known: &[&str]) -> String {
    let mut known = known.to_vec();
    known.sort_unstable();
    known.dedup();
    let lower = word.to_ascii_lowercase().replace('-', "_");
    let foreign = FOREIGN
        .iter()
        .find(|(of, name, _)| *of == section && *name == lower);
    let meant: Vec<&str> = match foreign {
        Some((_, _, meant)) => meant.to_vec(),
        None => did_you_mean(&lower, &known).into_iter().collect(),
    };
    if known.len() <= SHORT {
        return bracket(&known.join(", "), &meant);
    }
    let count = known.len();
    known.sort_by(|a, b| {
        let by_likeness = likeness(&lower, b).total_cmp(&likeness(&lower, a));
        meant.contains(b).cmp(&meant.contains(a)).then(by_likeness)
    });
    known.truncate(NEAREST);
    known.sort_unstable();
    let page = match section {
        "routes[]" | "targets[]" | "header_deadline_response" => "routes",
        section => section.split('.').next().unwrap_or(section),
    };
    let place = match section {
        "toron" => "docs/operations.md#labels".to_owned(),
        _ => format!("docs/configuration.md#{page}"),
    };
    let list = format!("{}, …: {count} keys, see {place}", known.join(", "));
    bracket(&list, &meant)
}

fn bracket(list: &str, meant: &[&str]) -> String {
    let quoted: Vec<String> = meant.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        None => format!("(allowed: {list})"),
        Some((one, [])) => format!("(allowed: {list}; did you mean {one}?)"),
        Some((last, others)) => format!(
            "(allowed: {list}; did you mean {} or {last}?)",
            others.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        let known = ["read_timeout", "write_timeout", "host", "port", "via"];
        assert_eq!(did_you_mean("read_timout", &known), Some("read_timeout"));
        assert_eq!(did_you_mean("readtimeout", &known), Some("read_timeout"));
        assert_eq!(did_you_mean("Prot", &known), Some("port"));
        assert_eq!(did_you_mean("HOST", &known), Some("host"));
        assert_eq!(did_you_mean("banana", &known), None);
        assert_eq!(did_you_mean("", &known), None);
    }

    #[test]
    fn a_long_list_is_cut_to_what_comes_near() {
        let known = [
            "target", "targets", "target", "a", "b", "c", "d", "e", "f", "g",
        ];
        assert_eq!(
            allowed_keys("targt", "routes[]", &known),
            "(allowed: a, b, target, targets, …: 9 keys, see docs/configuration.md#routes; did you \
             mean \"target\"?)"
        );
        assert_eq!(
            allowed_keys("zz", "admin", &["listen", "key", "key"]),
            "(allowed: key, listen)"
        );
    }

    #[test]
    fn names_of_other_programs_are_recognised() {
        for (section, word, said) in [
            ("routes[]", "path", "; did you mean \"prefix\"?)"),
            ("routes[]", "Methods", "; did you mean \"method\"?)"),
            ("server", "listen-port", "; did you mean \"port\"?)"),
            (
                "routes[]",
                "timeout",
                "; did you mean \"response_header_timeout\", \"read_timeout\" or \"request_deadline\"?)",
            ),
        ] {
            let hint = allowed_keys(word, section, &["a"]);
            assert!(hint.ends_with(said), "{word}: {hint}");
        }
    }
}
