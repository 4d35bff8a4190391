//! Settings of one toron under test, and their two YAML files.

use std::fmt::Write as _;

/// The engine that moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    Epoll,
    IoUring,
}

/// Runs `test` on each engine.
pub fn both(test: impl Fn(Engine)) {
    Engine::ALL.into_iter().for_each(test);
}

impl Engine {
    pub const ALL: [Engine; 2] = [Engine::Epoll, Engine::IoUring];

    pub fn name(self) -> &'static str {
        match self {
            Engine::Epoll => "epoll",
            Engine::IoUring => "io_uring",
        }
    }
}

/// One entry of routes.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub host: Option<String>,
    pub prefix: String,
    /// `host:port`.
    pub target: String,
    pub strip_prefix: bool,
    /// Further keys with their values as written in YAML.
    pub extra: Vec<(&'static str, String)>,
}

impl Route {
    /// All paths under `prefix` to `target`, the path left as it is.
    pub fn new(prefix: &str, target: &(impl ToString + ?Sized)) -> Self {
        Route {
            host: None,
            prefix: prefix.to_owned(),
            target: target.to_string(),
            strip_prefix: false,
            extra: Vec::new(),
        }
    }
}

/// What a test needs of toron. Everything not named keeps toron's default, except the firewall,
/// which is off unless keys of it are given: a test comes from one address and would be limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub engine: Engine,
    pub worker_pool_size: usize,
    /// 0 = unlimited; `None` = toron's default.
    pub max_body_bytes: Option<u64>,
    pub server: Vec<(&'static str, String)>,
    pub transport: Vec<(&'static str, String)>,
    pub firewall: Vec<(&'static str, String)>,
    pub admin_key: Option<String>,
    /// Further keys of `admin`, where there is a key.
    pub admin: Vec<(&'static str, String)>,
    pub routes: Vec<Route>,
    /// Entries of routes.yaml behind those, as written there.
    pub further_routes: String,
    /// Soft and hard limit of descriptors.
    pub descriptor_limit: Option<u32>,
}

impl Settings {
    pub fn new(engine: Engine, routes: Vec<Route>) -> Self {
        Settings {
            engine,
            worker_pool_size: 2,
            max_body_bytes: None,
            server: Vec::new(),
            transport: Vec::new(),
            firewall: Vec::new(),
            admin_key: None,
            admin: Vec::new(),
            routes,
            further_routes: String::new(),
            descriptor_limit: None,
        }
    }

    pub fn config_yaml(&self) -> String {
        let mut text = String::from("server:\n  host: 127.0.0.1\n  port: 0\n");
        let _ = writeln!(text, "  engine: {}", self.engine.name());
        let _ = writeln!(text, "  worker_pool_size: {}", self.worker_pool_size);
        if let Some(limit) = self.max_body_bytes {
            let _ = writeln!(text, "  max_body_bytes: {limit}");
        }
        keys(&mut text, 2, &self.server);
        if !self.transport.is_empty() {
            text.push_str("proxy:\n  transport:\n");
            keys(&mut text, 4, &self.transport);
        }
        text.push_str("firewall:\n");
        if self.firewall.is_empty() {
            text.push_str("  enabled: false\n");
        }
        keys(&mut text, 2, &self.firewall);
        if let Some(key) = &self.admin_key {
            let _ = writeln!(text, "admin:\n  key: {key}");
            keys(&mut text, 2, &self.admin);
        }
        text
    }

    pub fn routes_yaml(&self) -> String {
        let mut text = String::from("routes:\n");
        for route in &self.routes {
            let _ = writeln!(text, "  - prefix: {}", route.prefix);
            if let Some(host) = &route.host {
                let _ = writeln!(text, "    host: {host}");
            }
            let _ = writeln!(text, "    target: http://{}", route.target);
            let _ = writeln!(text, "    strip_prefix: {}", route.strip_prefix);
            keys(&mut text, 4, &route.extra);
        }
        text.push_str(&self.further_routes);
        text
    }
}

fn keys(text: &mut String, indent: usize, keys: &[(&'static str, String)]) {
    for (key, value) in keys {
        let _ = writeln!(text, "{:indent$}{key}: {value}", "");
    }
}
