//! Holds the import floors of src/lib.rs: imports go down only, the lower floors are pure, no two
//! files import each other, also not by a detour, and `unsafe` lives in reactor/ alone.
//!
//! ```text
//! main, cli ▸ tune ▸ origin, bench ▸ control ▸ server ▸ proxy ▸ policy ▸ http ▸ args ▸ reactor/
//! ```
//!
//! The checker reads tokens, not types: comments, literals and `#[cfg(test)]` items are left out,
//! `use` trees are expanded, and paths inside code (`crate::x::f()`) count as imports.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "floors/cycles.rs"]
mod cycles;
#[path = "floors/scan.rs"]
mod scan;

use std::path::{Path, PathBuf};

use cycles::Graph;
use scan::{from_root, module_path, named_paths, tokens, without_tests, Named};

/// Floors from the ground up. Modules of one floor do not import each other.
const FLOORS: [&[&str]; 8] = [
    &["args"],
    &["http"],
    &["policy"],
    &["proxy"],
    &["server"],
    &["control"],
    &["origin", "bench"],
    &["tune"],
];

/// Files of the binary and what stands below them, which may import everything.
const TOP: [&str; 3] = ["lib", "main", "cli"];

const PURE: [&str; 3] = ["http", "policy", "proxy"];

/// What pure code does not touch: sockets, files, threads, clocks, processes.
const IMPURE: [&str; 11] = [
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os",
    "std::fs",
    "std::thread",
    "std::process",
    "std::env",
    "std::time::Instant",
    "std::time::SystemTime",
    "libc",
];

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|names| names.contains(&module))
}

/// What is wrong with a file of src/ (`file` relative to it).
fn faults_in_src(file: &str, source: &str) -> Vec<String> {
    let all = tokens(source);
    let mut faults = unsafe_faults(&all);
    let path = module_path(file);
    let top = file.split('/').next().unwrap_or(file);
    let top = top.trim_end_matches(".rs");
    if TOP.contains(&top) {
        return faults;
    }
    let module = path[0].clone();
    let Some(own) = floor_of(&module) else {
        faults.push(format!(
            "module {module} has no floor: give it one in tests/floors.rs"
        ));
        return faults;
    };
    let is_test = path.iter().any(|m| m == "tests" || m.ends_with("_tests"));
    for named in named_paths(&without_tests(&all)) {
        match from_root(&named, &path) {
            Err(fault) => faults.push(fault),
            Ok(Some(from_root)) => {
                let other = &from_root[0];
                let shown = named.path.join("::");
                match floor_of(other) {
                    _ if *other == module => {}
                    None => faults.push(format!("{shown}: {other} has no floor")),
                    Some(floor) if floor >= own => {
                        faults.push(format!("{module} imports {shown}, which is not below it"));
                    }
                    Some(_) => {}
                }
            }
            Ok(None) if named.path[0] == "toron" => {
                faults.push(format!(
                    "{}: a module names its own crate",
                    named.path.join("::")
                ));
            }
            Ok(None) => {}
        }
        if PURE.contains(&module.as_str()) && !is_test {
            faults.extend(impurity(&module, &named));
        }
    }
    faults
}

fn impurity(module: &str, named: &Named) -> Option<String> {
    let glob = named.path.last().is_some_and(|w| w == "*");
    let written = named.path.join("::");
    let path = written
        .trim_end_matches("::*")
        .replacen("core::", "std::", 1);
    let inside = |outer: &str, inner: &str| {
        inner == outer
            || inner
                .strip_prefix(outer)
                .is_some_and(|r| r.starts_with("::"))
    };
    let forbidden = IMPURE.iter().find(|f| {
        // Importing the module that holds a forbidden name brings the name in as well.
        inside(f, &path) || ((named.import || glob) && inside(&path, f))
    });
    let logs = module == "proxy" && path.starts_with("log::");
    (forbidden.is_some() || logs).then(|| format!("{module} is pure, but names {written}"))
}

fn unsafe_faults(tokens: &[String]) -> Vec<String> {
    let count = tokens.iter().filter(|t| *t == "unsafe").count();
    if count == 0 {
        return Vec::new();
    }
    vec![format!("unsafe, {count} times: it belongs into reactor/")]
}

/// What is wrong with a file of reactor/: it has never heard of toron.
fn faults_in_reactor(source: &str) -> Vec<String> {
    let all = tokens(source);
    let imports = named_paths(&all)
        .into_iter()
        .filter(|n| n.path[0] == "toron");
    let mut faults: Vec<String> = imports
        .map(|n| format!("reactor imports {}", n.path.join("::")))
        .collect();
    if all.windows(3).any(|w| w == ["extern", "crate", "toron"]) {
        faults.push("reactor imports toron".into());
    }
    faults
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir) else {
        return found;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Checks all files under `dir`; the checker gets the path relative to it.
fn check(dir: &str, at_least: usize, checker: impl Fn(&str, &str) -> Vec<String>) {
    let base = root().join(dir);
    let files = rust_files(&base);
    assert!(
        files.len() >= at_least,
        "only {} files under {dir}",
        files.len()
    );
    let mut faults = Vec::new();
    for file in files {
        let name = file.strip_prefix(&base).unwrap().display().to_string();
        let source = std::fs::read_to_string(&file).unwrap();
        faults.extend(
            checker(&name, &source)
                .into_iter()
                .map(|f| format!("{dir}/{name}: {f}")),
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn imports_go_down_only_and_the_lower_floors_are_pure() {
    check("src", 2, faults_in_src);
    let main = std::fs::read_to_string(root().join("src/main.rs")).unwrap();
    let lib = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for text in [main, lib] {
        assert!(
            text.contains("#![forbid(unsafe_code)]"),
            "a crate root does not forbid unsafe"
        );
    }
}

#[test]
fn the_reactor_has_never_heard_of_toron() {
    check("reactor", 5, |_, source| faults_in_reactor(source));
    let manifest = std::fs::read_to_string(root().join("reactor/Cargo.toml")).unwrap();
    let dependency = manifest
        .lines()
        .any(|l| l.trim_start().starts_with("toron ="));
    assert!(!dependency, "reactor depends on toron");
}

#[test]
fn no_files_import_each_other() {
    let mut cycles = Vec::new();
    for (dir, at_least) in [("src", 150), ("reactor/src", 100)] {
        let base = root().join(dir);
        let texts: Vec<(String, String)> = rust_files(&base)
            .iter()
            .map(|file| {
                let name = file.strip_prefix(&base).unwrap().display().to_string();
                (name, std::fs::read_to_string(file).unwrap())
            })
            .collect();
        let graph = Graph::of(texts.iter().map(|(name, text)| (&name[..], &text[..])));
        assert!(
            graph.faults.is_empty(),
            "{dir}: {}",
            graph.faults.join("\n")
        );
        // The scanner still sees the imports.
        assert!(graph.len() >= at_least, "{dir}: {} imports", graph.len());
        cycles.extend(graph.cycles().iter().map(|c| format!("{dir}: {c}")));
    }
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

#[test]
fn tests_and_benches_have_no_unsafe() {
    check("tests", 2, |_, source| unsafe_faults(&tokens(source)));
    if root().join("benches").exists() {
        check("benches", 1, |_, source| unsafe_faults(&tokens(source)));
    }
}

// The checker itself.

#[test]
fn violations_are_found() {
    for (file, source) in [
        ("http/a.rs", "use crate::proxy::x;"),
        ("http/a.rs", "use crate::{http::b, server};"),
        ("http/a.rs", "use super::super::proxy::x;"),
        ("http/mod.rs", "use super::policy::x;"),
        ("http/mod.rs", "use super::*;"),
        ("http/a.rs", "use super::super::super::x;"),
        ("http/mod.rs", "use crate::*;"),
        ("http/a.rs", "fn f() { crate::policy::g() }"),
        (
            "http/a.rs",
            "mod inner { use super::super::super::proxy::x; }",
        ),
        ("policy/a.rs", "use std::time::Instant;"),
        (
            "policy/a.rs",
            "use std::{net::{IpAddr, TcpStream}, sync::Arc};",
        ),
        ("policy/a.rs", "use std::time;"),
        ("policy/a.rs", "use std::net::*;"),
        (
            "policy/a.rs",
            "fn f() { let t = std::time::Instant::now(); }",
        ),
        ("proxy/a.rs", "use std::fs::{self, File};"),
        ("proxy/a.rs", "fn f() { std::thread::sleep(d) }"),
        ("proxy/a.rs", "fn f() { log::info!(\"x\") }"),
        ("proxy/a.rs", "use crate::server::session::Session as S;"),
        ("server/a.rs", "use crate::control::config;"),
        ("control/a.rs", "use crate::origin;"),
        ("origin/a.rs", "use crate::bench::x;"),
        ("server/a.rs", "fn f() { unsafe { g() } }"),
        ("main.rs", "fn main() { unsafe {} }"),
        ("http/a.rs", "use toron::policy::x;"),
        ("attic/mod.rs", "fn f() {}"),
        ("server/a.rs", "use crate::attic::x;"),
        // Not hidden by what looks like a comment, a string or a lifetime.
        ("http/a.rs", "const S: &str = \"// \"; use crate::proxy::x;"),
        (
            "http/a.rs",
            "const S: &str = r#\"\" /* \"#; use crate::proxy::x;",
        ),
        (
            "http/a.rs",
            "fn f<'a>(c: char) { c == '\"'; } use crate::proxy::x;",
        ),
        (
            "http/a.rs",
            "#[cfg(test)] mod tests { fn f() {} } use crate::proxy::x;",
        ),
        ("http/a.rs", "#[cfg(test)] use a::b; use crate::proxy::x;"),
    ] {
        assert!(
            !faults_in_src(file, source).is_empty(),
            "not found in {file}: {source}"
        );
    }
    assert_eq!(faults_in_reactor("use toron::http::x;").len(), 1);
    assert_eq!(faults_in_reactor("fn f() { toron::run() }").len(), 1);
}

#[test]
fn what_is_allowed_is_not_a_violation() {
    for (file, source) in [
        (
            "http/a.rs",
            "use super::b::{C, D}; use crate::http::e; use std::net::IpAddr;",
        ),
        (
            "http/a.rs",
            "// use crate::proxy::x;\n/* use crate::server::y; /* nested */ */",
        ),
        (
            "http/a.rs",
            "//! [`x`](crate::proxy::x)\nconst S: &str = \"use crate::proxy::x; unsafe\";",
        ),
        (
            "http/a.rs",
            "#[cfg(test)] mod tests { use super::*; use std::fs; use crate::proxy::x; }",
        ),
        ("http/tests/a.rs", "use super::*; use std::time::Instant;"),
        ("http/a.rs", "mod inner { use super::b; }"),
        (
            "policy/a.rs",
            "use std::time::Duration; use crate::http::path::Path;",
        ),
        (
            "proxy/a.rs",
            "use crate::{http, policy::{self, router::Table}}; use toron_reactor::Time;",
        ),
        (
            "server/a.rs",
            "use std::time::Instant; use crate::proxy::transaction::Input;",
        ),
        (
            "origin/a.rs",
            "use crate::control::config; use crate::server::Session;",
        ),
        ("main.rs", "use toron::control::check; mod cli;"),
        ("cli.rs", "use toron::args::ServeArgs;"),
        ("cli/help.rs", "use toron::{bench, tune};"),
    ] {
        assert_eq!(
            faults_in_src(file, source),
            Vec::<String>::new(),
            "{file}: {source}"
        );
    }
    assert!(faults_in_reactor("unsafe fn f() {} use toron_reactor::Engine;").is_empty());
}
