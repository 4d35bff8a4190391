//! The two files: found, read, checked, and made into settings and a table of routes.
//!
//! ```text
//! yaml     text → tree with places
//! section  tree → typed values; faults for what does not fit, unknown keys
//! process  server, proxy, admin, logging (firewall and discovery: files of their own)
//! routes   routes: entries, targets, limits with what they inherit (inherited)
//! mod      files, precedence between them, rules across routes
//! ```
//!
//! Every fault of both files is found in one run; nothing is ignored silently.

pub mod addresses;
pub mod discovery;
pub mod fields;
pub mod finding;
pub mod firewall;
pub mod fixed_response;
pub mod hint;
pub mod inherited;
pub mod limits;
pub mod process;
pub mod routes;
pub mod section;
pub mod target;
pub mod values;
pub mod yaml;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::control::resolve::Endpoints;
use crate::policy::router::{self, Clash, Table, MAX_METHODS};
use crate::policy::settings::{Place, Route, RouteKind, SetBy, Settings};
use crate::policy::snapshot::Snapshot;

use finding::{Finding, Findings, Mark};
use inherited::Inherited;
use routes::{show_key, ReadRoute};
use section::{Report, Section};
use yaml::Node;

/// The folder looked into after the working directory.
pub const SYSTEM_FOLDER: &str = "/etc/toron";

/// Where configuration comes from.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// `--config`, if given.
    pub config: Option<PathBuf>,
    /// `--routes`, if given.
    pub routes: Option<PathBuf>,
    /// Folders to look into for files that were not given; empty is the working directory, then
    /// [`SYSTEM_FOLDER`].
    pub folders: Vec<PathBuf>,
    /// The environment's `TORON_ADMIN_KEY`, if set.
    pub admin_key: Option<String>,
    /// Of a process that runs, how many reactors it has: until it is started anew, what follows from
    /// their number follows from this and not from the file.
    pub reactors: Option<usize>,
}

impl Inputs {
    /// The files of the command line, else the usual places; the key from the environment.
    #[must_use]
    pub fn from_environment(config: Option<PathBuf>, routes: Option<PathBuf>) -> Self {
        let admin_key = std::env::var("TORON_ADMIN_KEY").ok();
        Inputs {
            config,
            routes,
            folders: Vec::new(),
            admin_key,
            reactors: None,
        }
    }
}

/// A configuration that can be used.
#[derive(Debug)]
pub struct Loaded {
    /// What the reactors read.
    pub snapshot: Snapshot,
    /// What the operator should know.
    pub warnings: Vec<Finding>,
    /// What routes inherit that are not written in the files.
    pub inherited: Inherited,
    /// The files it was read from.
    pub files: Vec<PathBuf>,
}

/// A configuration that cannot be used, and all that is wrong with it.
#[derive(Debug)]
pub struct Rejected {
    /// In order of place.
    pub faults: Vec<Finding>,
    /// What else the operator should know.
    pub warnings: Vec<Finding>,
}

/// Reads both files. Targets take their endpoints from `endpoints`, so that one that stays keeps
/// its addresses.
pub fn load(inputs: &Inputs, endpoints: &mut Endpoints) -> Result<Loaded, Rejected> {
    let findings = Findings::default();
    let files = find(inputs, &findings);
    let texts: Vec<Text> = files
        .iter()
        .map(|(path, role)| read(path, *role, &findings))
        .collect();
    let made = assemble(&texts, inputs, endpoints, &findings);
    finish(
        made,
        findings,
        files.into_iter().map(|(path, _)| path).collect(),
    )
}

/// The files that [`load`] would read, the configuration first; the routes beside it also while they
/// are not there.
#[must_use]
pub fn files(inputs: &Inputs) -> Vec<PathBuf> {
    let found = find(inputs, &Findings::default());
    let mut files: Vec<PathBuf> = found.into_iter().map(|(path, _)| path).collect();
    if let [config] = files.as_slice() {
        files.push(config.with_file_name("routes.yaml"));
    }
    files
}

/// As [`load`], from texts that stand for `config.yaml` and `routes.yaml`.
pub fn load_texts(
    config: &str,
    routes: Option<&str>,
    endpoints: &mut Endpoints,
) -> Result<Loaded, Rejected> {
    let findings = Findings::default();
    let given = [
        ("config.yaml", Role::Config, Some(config)),
        ("routes.yaml", Role::Routes, routes),
    ];
    let mut texts = Vec::new();
    for (file, role, text) in given {
        if let Some(text) = text {
            let file: Arc<str> = file.into();
            let root = yaml::parse(&file, text, &findings);
            texts.push(Text { file, role, root });
        }
    }
    let made = assemble(&texts, &Inputs::default(), endpoints, &findings);
    finish(made, findings, Vec::new())
}

/// Every key that the two files may have, as the parser asks for them: `section.key`, where routes
/// are `routes[]`, their targets `targets[]`, and the root has no name.
#[must_use]
pub fn known_keys() -> BTreeSet<String> {
    // Sections that are absent are asked for their keys as well; those in lists must be there.
    const ONE_OF_EACH: &str = "{discovery: {}, routes: [{targets: [{url: http://a}], \
                               header_deadline_response: {}}, {prefix: /b, status: 200}]}";
    let findings = Findings::default();
    let file: Arc<str> = "".into();
    let root = yaml::parse(&file, ONE_OF_EACH, &findings);
    let text = Text {
        file,
        role: Role::Config,
        root,
    };
    let inputs = Inputs::default();
    assemble(&[text], &inputs, &mut Endpoints::default(), &findings);
    findings.into_asked()
}

fn finish(
    made: Option<(Settings, Inherited, Table)>,
    findings: Findings,
    files: Vec<PathBuf>,
) -> Result<Loaded, Rejected> {
    let is_good = findings.is_good();
    let (faults, warnings) = findings.into_sorted();
    match made {
        Some((settings, inherited, table)) if is_good => Ok(Loaded {
            inherited,
            snapshot: Snapshot::new(Arc::new(settings), table),
            warnings,
            files,
        }),
        _ => Err(Rejected { faults, warnings }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Config,
    Routes,
}

/// A file that was read.
struct Text {
    file: Arc<str>,
    role: Role,
    /// `None` if it is not YAML.
    root: Option<Node>,
}

impl Text {
    fn section<'a>(&'a self, findings: &'a Findings) -> Option<Section<'a>> {
        Section::new(
            Report {
                file: &self.file,
                findings,
            },
            "",
            self.root.as_ref()?,
        )
    }
}

fn name_of(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

/// Which files to read. Routes that are not named are looked for beside the configuration.
fn find(inputs: &Inputs, findings: &Findings) -> Vec<(PathBuf, Role)> {
    let mut files = Vec::new();
    let config = inputs
        .config
        .clone()
        .or_else(|| find_config(inputs, findings));
    let beside = config
        .as_ref()
        .and_then(|c| c.parent())
        .map(|folder| folder.join("routes.yaml"));
    files.extend(config.map(|path| (path, Role::Config)));
    let routes = inputs
        .routes
        .clone()
        .or_else(|| beside.filter(|path| path.exists()));
    files.extend(routes.map(|path| (path, Role::Routes)));
    files
}

fn find_config(inputs: &Inputs, findings: &Findings) -> Option<PathBuf> {
    let usual = [PathBuf::new(), PathBuf::from(SYSTEM_FOLDER)];
    let folders: &[PathBuf] = if inputs.folders.is_empty() {
        &usual
    } else {
        &inputs.folders
    };
    for folder in folders {
        let both = [folder.join("config.yaml"), folder.join("toron.yaml")];
        match [both[0].exists(), both[1].exists()] {
            [false, false] => {}
            [true, true] => {
                let text = format!(
                    "both this file and {} are there, which hold the same (allowed: one of them)",
                    both[0].display()
                );
                findings.fault(&name_of(&both[1]), Mark::default(), text);
                return Some(both[0].clone());
            }
            [first, _] => return Some(both[usize::from(!first)].clone()),
        }
    }
    let searched: Vec<String> = folders
        .iter()
        .map(|f| {
            if f.as_os_str().is_empty() {
                ".".to_owned()
            } else {
                f.display().to_string()
            }
        })
        .collect();
    let text = format!(
        "not found in {} (name one with --config)",
        searched.join(" or ")
    );
    findings.fault(&"config.yaml".into(), Mark::default(), text);
    None
}

fn read(path: &Path, role: Role, findings: &Findings) -> Text {
    let file = name_of(path);
    let text = fs::read(path).map(String::from_utf8);
    let root = match text {
        Ok(Ok(text)) => yaml::parse(&file, &text, findings),
        Ok(Err(error)) => {
            let good = error.utf8_error().valid_up_to();
            let lines = error.as_bytes().get(..good).unwrap_or_default();
            let line = 1 + lines.iter().filter(|&&b| b == b'\n').count();
            let mark = Mark {
                line: u32::try_from(line).unwrap_or(u32::MAX),
                column: 1,
            };
            findings.fault(&file, mark, "not UTF-8 on this line".to_owned());
            None
        }
        Err(error) => {
            findings.fault(&file, Mark::default(), format!("cannot be read: {error}"));
            None
        }
    };
    Text { file, role, root }
}

/// Settings and table, or `None` where the configuration could not be read at all.
fn assemble(
    texts: &[Text],
    inputs: &Inputs,
    endpoints: &mut Endpoints,
    findings: &Findings,
) -> Option<(Settings, Inherited, Table)> {
    let config = texts.iter().find(|text| text.role == Role::Config);
    let routes_file = texts.iter().find(|text| text.role == Role::Routes);
    let root = config.and_then(|text| text.section(findings));
    let usable = root.is_some();
    // Without the configuration the routes can still be checked, against the defaults.
    let nothing: Arc<str> = "".into();
    let root = root.unwrap_or_else(|| {
        Section::absent(
            Report {
                file: &nothing,
                findings,
            },
            "",
        )
    });
    let mut process = process::read(root, inputs.admin_key.as_deref());
    let read_timeout = process.inherited.read_timeout.1.clone();
    process.settings.sources.read_timeout = read_timeout;
    if let Some(reactors) = inputs.reactors {
        process.inherited.worker_pool_size = reactors;
    }

    let mut read = Vec::new();
    if let (Some(text), Some(node)) = (config, process.routes) {
        let report = Report {
            file: &text.file,
            findings,
        };
        read.extend(routes::read(report, node, &process.inherited, endpoints));
    }
    if let Some(root) = routes_file.and_then(|text| text.section(findings)) {
        if let Some(node) = root.node("routes") {
            read.extend(routes::read(
                root.report,
                node,
                &process.inherited,
                endpoints,
            ));
        } else if root.mark_of("routes").is_none() {
            root.report
                .fault(root.mark, "there is no list of routes (allowed: routes:)");
        }
        root.finish();
    }
    let nowhere =
        process.routes.is_none() && routes_file.is_none() && process.settings.discovery.is_none();
    if let Some(text) = config.filter(|_| usable && nowhere) {
        let message = "there are no routes: neither routes: here nor routes.yaml beside this file \
                       (name one with --routes)";
        findings.fault(&text.file, Mark::default(), message.to_owned());
    }
    check_routes(&read, process.inherited.worker_pool_size, findings);
    let marks: HashMap<Place, Mark> = read
        .iter()
        .map(|r| (r.route.origin.clone(), r.mark))
        .collect();
    let made = router::compile(read.into_iter().map(|r| r.route).collect());
    for clash in &made.duplicates {
        report_duplicate(clash, &marks, findings);
    }
    usable.then_some((process.settings, process.inherited, made.table))
}

/// R5. The later place is the one to mend.
fn report_duplicate(clash: &Clash, marks: &HashMap<Place, Mark>, findings: &Findings) {
    let (first, second) = (&clash.kept.origin, &clash.dropped.origin);
    let text = format!(
        "the same route is already at {first}: {}",
        show_key(&clash.kept)
    );
    let mark = marks.get(second).copied().unwrap_or_default();
    findings.fault(&second.file, mark, text);
}

/// Rules across routes, and things worth a warning.
fn check_routes(routes: &[ReadRoute], worker_pool_size: usize, findings: &Findings) {
    let mut methods: Vec<&String> = routes.iter().flat_map(|r| &r.route.methods).collect();
    methods.sort();
    methods.dedup();
    if let Some(last) = routes.last().filter(|_| methods.len() > MAX_METHODS) {
        let text = format!("more than {MAX_METHODS} different methods are named in all");
        findings.fault(&last.route.origin.file, last.mark, text);
    }
    check_overlaps(routes, findings);
    for read in routes {
        warn_of(read, findings);
    }
    let mut elevated = routes.iter().filter(|r| r.elevated);
    let caps: u64 = elevated
        .clone()
        .filter_map(|r| r.route.limits.max_concurrency)
        .map(u64::from)
        .sum();
    let quarter = (worker_pool_size / 4) as u64;
    if let Some(last) = elevated.next_back().filter(|_| caps > quarter) {
        let text = format!(
            "the caps of all routes that ask for more than the defaults add up to {caps}, more than \
             a quarter of worker_pool_size ({quarter})"
        );
        findings.warning(&last.route.origin.file, last.mark, text);
    }
}

/// Two routes that differ only in their lists of methods must not share one.
fn check_overlaps(routes: &[ReadRoute], findings: &Findings) {
    let key = |r: &Route| {
        let fields = r
            .headers
            .iter()
            .map(|(n, v)| (n.to_ascii_lowercase(), v.clone()));
        (
            r.host.to_string(),
            r.prefix.clone(),
            fields.collect::<Vec<_>>(),
        )
    };
    let mut taken = HashMap::new();
    for read in routes {
        let route = &read.route;
        let key = key(route);
        for method in &route.methods {
            let first: &mut &Route = taken.entry((key.clone(), method)).or_insert(route);
            if !std::ptr::eq(*first, route) && first.methods != route.methods {
                let text = format!(
                    "overlaps with the route at {}: both take {method} for {}{}",
                    first.origin, route.host, route.prefix
                );
                findings.fault(&route.origin.file, read.mark, text);
            }
        }
    }
}

fn warn_of(read: &ReadRoute, findings: &Findings) {
    let route = &read.route;
    let warn = |text: &str| findings.warning(&route.origin.file, read.mark, text.to_owned());
    built_in(route, &warn);
    if route.prefix.ends_with('*') {
        warn("the * in the prefix stands for itself: only paths that hold one match (a prefix needs none)");
    }
    let RouteKind::Upstream(_) = &route.kind else {
        return;
    };
    if read.elevated && route.limit_sources.max_concurrency != SetBy::Route {
        warn(
            "upgraded connections hold their slot until they end: the cap of the guardrail can be \
             filled by tunnels (set max_concurrency)",
        );
    }
    let looks_long = |part: &str| {
        let part = part.to_ascii_lowercase();
        ["ws", "websocket", "socket.io", "sse", "events", "stream"].contains(&part.as_str())
    };
    if route.limits.request_deadline.is_some() && route.prefix.split('/').any(looks_long) {
        warn(
            "request_deadline cuts event streams, and upgraded connections only with \
             request_deadline_covers_upgrades (allowed: header_deadline, which ends at the headers)",
        );
    }
}

fn built_in(route: &Route, warn: &dyn Fn(&str)) {
    match route.prefix.as_str() {
        "/health" | "/metrics" => {
            warn(&format!(
                "this route wins over the built-in {}",
                route.prefix
            ));
        }
        prefix if prefix == "/internal" || prefix.starts_with("/internal/") => {
            warn("this route is never reached: toron answers everything below /internal itself");
        }
        _ => {}
    }
}

#[cfg(test)]
mod every_key_tests;
#[cfg(test)]
mod guardrail_tests;
#[cfg(test)]
mod hint_tests;
#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
