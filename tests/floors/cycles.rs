//! Import cycles between the files of a crate.
//!
//! A name that a file passes on (`pub use`) leads to where it comes from. A module and the modules
//! inside it are one thing: what a parent takes from its own children, or passes on of theirs, is
//! no import here, what children take from their parent is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::scan::{from_root, module_path, named_paths, tokens, without_tests, Named};

/// Longest chain of names passed on that is followed.
const MOST_HOPS: usize = 8;

type Module = Vec<String>;

struct File {
    name: String,
    named: Vec<Named>,
}

/// The files of a crate and what they import of each other.
pub struct Graph {
    files: BTreeMap<Module, File>,
    /// For each file the files it imports, with the first path that says so.
    imports: BTreeMap<Module, BTreeMap<Module, String>>,
    /// Paths that lead nowhere.
    pub faults: Vec<String>,
}

fn join(front: &[String], back: &[String]) -> Module {
    front.iter().chain(back).cloned().collect()
}

fn is_inside(inner: &[String], outer: &[String]) -> bool {
    inner.len() > outer.len() && inner.starts_with(outer)
}

impl Graph {
    /// From the names of files, relative to the crate's root, and their text. Tests are left out,
    /// and `main.rs`, which nothing can import.
    pub fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Graph {
        let mut graph = Graph {
            files: BTreeMap::new(),
            imports: BTreeMap::new(),
            faults: Vec::new(),
        };
        for (name, text) in files {
            let module = module_path(name);
            let is_test = module.iter().any(|m| m == "tests" || m.ends_with("_tests"));
            if is_test || name == "main.rs" {
                continue;
            }
            let file = File {
                name: name.to_owned(),
                named: named_paths(&without_tests(&tokens(text))),
            };
            graph.files.insert(module, file);
        }
        graph.find_imports();
        graph
    }

    /// How many pairs of files there are of which one imports the other.
    pub fn len(&self) -> usize {
        self.imports.values().map(BTreeMap::len).sum()
    }

    fn find_imports(&mut self) {
        for (module, file) in &self.files {
            let mut imports = BTreeMap::new();
            for named in &file.named {
                let shown = named.path.join("::");
                match self.targets(module, named) {
                    Err(fault) => self.faults.push(format!("{}: {fault}", file.name)),
                    Ok(targets) => {
                        for target in targets {
                            if target != *module && !is_inside(&target, module) {
                                imports.entry(target).or_insert_with(|| shown.clone());
                            }
                        }
                    }
                }
            }
            self.imports.insert(module.clone(), imports);
        }
    }

    /// The file that a path from the root leads into, and what is left of the path.
    fn holder<'p>(&self, path: &'p [String]) -> Option<(&'p [String], &'p [String])> {
        (0..=path.len())
            .rev()
            .map(|n| path.split_at(n))
            .find(|(module, _)| self.files.contains_key(*module))
    }

    /// The import by which a file knows `name`.
    fn bound(&self, module: &[String], name: &str) -> Option<&Named> {
        let named = &self.files.get(module)?.named;
        named
            .iter()
            .find(|n| n.import && n.name == name && name != "*" && n.path[0] != name)
    }

    /// A path that a file names, from the root; `None` if it is not this crate's.
    fn absolute(
        &self,
        module: &[String],
        named: &Named,
        hops: usize,
    ) -> Result<Option<Module>, String> {
        let (first, rest) = (&named.path[0], &named.path[1..]);
        if first == "crate" || first == "super" {
            return from_root(named, module);
        }
        if first == "self" {
            return Ok((named.depth == 0).then(|| join(module, rest)));
        }
        if self.files.contains_key(&join(module, &named.path[..1])) {
            return Ok(Some(join(module, &named.path)));
        }
        match self.bound(module, first) {
            Some(bound) if hops < MOST_HOPS => {
                self.absolute(module, &bound.followed_by(rest), hops + 1)
            }
            _ => Ok(None),
        }
    }

    /// The files that a path needs: the one that holds the thing, and those that pass it on unless
    /// it is a child's.
    fn targets(&self, module: &[String], named: &Named) -> Result<BTreeSet<Module>, String> {
        let mut targets = BTreeSet::new();
        let mut next = self.absolute(module, named, 0)?;
        for _ in 0..MOST_HOPS {
            let Some(path) = next else { break };
            let Some((holder, rest)) = self.holder(&path) else {
                break;
            };
            let passed_on = rest.first().and_then(|name| self.bound(holder, name));
            next = match passed_on {
                Some(bound) => self.absolute(holder, &bound.followed_by(&rest[1..]), 0)?,
                None => None,
            };
            let of_child = next
                .as_deref()
                .and_then(|path| self.holder(path))
                .is_some_and(|(source, _)| is_inside(source, holder));
            if !of_child {
                targets.insert(holder.to_vec());
            }
        }
        Ok(targets)
    }

    /// Cycles, each as its files with the paths by which they import. At least one is found
    /// wherever there are any; of several through the same file one is shown.
    pub fn cycles(&self) -> Vec<String> {
        let mut seen: BTreeSet<&Module> = BTreeSet::new();
        let mut cycles = Vec::new();
        for start in self.files.keys() {
            let Some(cycle) = self.shortest_cycle(start) else {
                continue;
            };
            if cycle.iter().any(|module| seen.contains(module)) {
                continue;
            }
            seen.extend(&cycle);
            let mut shown = self.files[start].name.clone();
            for (i, from) in cycle.iter().enumerate() {
                let to = cycle[(i + 1) % cycle.len()];
                let (by, name) = (&self.imports[*from][to], &self.files[to].name);
                shown.push_str(&format!(" -> {name} ({by})"));
            }
            cycles.push(shown);
        }
        cycles
    }

    /// The files of the shortest way from `start` back to it, beginning with `start`.
    fn shortest_cycle<'g>(&'g self, start: &'g Module) -> Option<Vec<&'g Module>> {
        let mut came_from: BTreeMap<&Module, &Module> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(module) = queue.pop_front() {
            for target in self.imports[module].keys() {
                if target == start {
                    let mut back = vec![module];
                    while *back[back.len() - 1] != *start {
                        back.push(came_from[back[back.len() - 1]]);
                    }
                    back.reverse();
                    return Some(back);
                }
                if !came_from.contains_key(target) {
                    came_from.insert(target, module);
                    queue.push_back(target);
                }
            }
        }
        None
    }
}

#[test]
fn cycles_are_found() {
    for files in [
        &[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")][..],
        &[
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A;"),
        ],
        &[
            ("m/mod.rs", "mod a; mod b;"),
            ("m/a.rs", "use super::b::B;"),
            ("m/b.rs", "use super::a::A;"),
        ],
        // Between folders.
        &[
            ("m/mod.rs", "mod a;"),
            ("m/a.rs", "use crate::n::b::B;"),
            ("n/mod.rs", "mod b;"),
            ("n/b.rs", "use super::super::m::a::A;"),
        ],
        // By a path in code, or behind a module that was imported.
        &[
            ("a.rs", "fn f() { crate::b::g() }"),
            ("b.rs", "use crate::a::f;"),
        ],
        &[
            ("a.rs", "use crate::m; fn f() { m::b::g() }"),
            ("m/mod.rs", "pub mod b;"),
            ("m/b.rs", "use crate::a::f;"),
        ],
        // By names that another file passes on.
        &[
            ("lib.rs", "mod a; mod b; pub use b::B;"),
            ("a.rs", "use crate::B;"),
            ("b.rs", "use crate::a::A;"),
        ],
        &[
            ("lib.rs", "mod a; mod b; pub use b::B as C;"),
            ("a.rs", "use crate::{C as D};"),
            ("b.rs", "use crate::a::A;"),
        ],
        &[
            ("lib.rs", "mod a; mod m; pub use m::B;"),
            ("a.rs", "use crate::B;"),
            ("m/mod.rs", "mod b; pub use self::b::B;"),
            ("m/b.rs", "use crate::a::A;"),
        ],
        &[
            ("lib.rs", "mod a; mod b; pub use b::b;"),
            ("a.rs", "use crate::b as run;"),
            ("b.rs", "use crate::a::A;"),
        ],
        &[
            ("a.rs", "use crate::hub::C;"),
            ("c.rs", ""),
            ("hub.rs", "pub use crate::c::C; use crate::a::A;"),
        ],
        // A child's need of its parent is one.
        &[
            ("m/mod.rs", "mod a; use crate::n::N;"),
            ("m/a.rs", "use super::M;"),
            ("n.rs", "use crate::m::a::A;"),
        ],
        // Tests do not hide what stands behind them.
        &[
            (
                "a.rs",
                "#[cfg(test)] mod tests { fn f() {} } use crate::b::B;",
            ),
            ("b.rs", "mod inner { use super::super::a::A; }"),
        ],
    ] {
        let graph = Graph::of(files.iter().copied());
        assert_eq!(graph.cycles().len(), 1, "{files:?}");
        assert!(graph.faults.is_empty(), "{:?}", graph.faults);
    }
}

#[test]
fn a_cycle_is_shown_with_the_paths_that_make_it() {
    let graph = Graph::of([
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "use crate::c; use crate::d::D;"),
        ("c.rs", ""),
        ("d.rs", "fn f() { super::a::g() }"),
    ]);
    assert_eq!(
        graph.cycles(),
        ["a.rs -> b.rs (crate::b::B) -> d.rs (crate::d::D) -> a.rs (super::a::g)"]
    );
    assert_eq!(graph.len(), 4);
}

#[test]
fn cycles_apart_are_shown_apart() {
    let graph = Graph::of([
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "use crate::a::A; use crate::c::C;"),
        ("c.rs", "use crate::d::D;"),
        ("d.rs", "use crate::c::C;"),
    ]);
    assert_eq!(graph.cycles().len(), 2);
}

#[test]
fn what_is_no_cycle_is_not_found() {
    for files in [
        &[
            ("a.rs", "use crate::b::B; use crate::c::C;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use std::a::A; use log::b;"),
        ][..],
        // A module and its children.
        &[
            ("lib.rs", "mod m; pub use m::A;"),
            (
                "m/mod.rs",
                "mod a; pub use a::A; use a::f; fn g() { a::f() }",
            ),
            ("m/a.rs", "use super::M; use crate::m::g;"),
        ],
        &[
            ("e.rs", "mod ops; use self::ops::f;"),
            ("e/ops.rs", "use super::E;"),
        ],
        &[
            ("m/mod.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("m/a.rs", "use super::B;"),
            ("m/b.rs", ""),
        ],
        // A name passed on does not stand for all that its file imports.
        &[
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("a.rs", "use crate::B;"),
            ("b.rs", ""),
        ],
        // Tests, comments, other crates, inline modules.
        &[
            ("a.rs", "#[cfg(test)] mod tests { use crate::b::B; }"),
            ("b.rs", "use crate::a::A;"),
        ],
        &[
            ("m/mod.rs", "mod a; #[cfg(test)] mod tests;"),
            ("m/a.rs", "use crate::m::b_tests::f;"),
            ("m/tests.rs", "use super::a::A;"),
            ("m/b_tests.rs", "use super::a::A;"),
        ],
        &[
            ("a.rs", "//! [`B`](crate::b::B)\n/* use crate::b::B; */"),
            ("b.rs", "use crate::a::A;"),
        ],
        &[
            ("a.rs", "use toron::b::B; fn f() { b::g() }"),
            ("b.rs", "use crate::a::A;"),
        ],
        &[
            ("a.rs", "mod b { use super::X; } pub use b::X;"),
            ("b.rs", "use crate::a::X;"),
        ],
    ] {
        let graph = Graph::of(files.iter().copied());
        assert_eq!(graph.cycles(), Vec::<String>::new(), "{files:?}");
        assert!(graph.faults.is_empty(), "{:?}", graph.faults);
    }
}

#[test]
fn a_path_that_could_be_anything_is_a_fault() {
    let graph = Graph::of([("a.rs", "use crate::*;")]);
    assert_eq!(graph.faults.len(), 1);
}
