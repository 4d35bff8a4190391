//! How many instructions things cost, counted by callgrind: `make bench`, or
//! `cargo bench --bench instructions`. Time on a shared machine differs by a tenth from one run to
//! the next; a count does not, so a change of a few per cent shows, and where it was made.
//!
//! ```text
//!  scenario.rs   what there is          request.rs   whole requests, on the engine of canned.rs
//!                                       heads.rs, parts.rs   what they consist of; texts.rs
//!  count.rs      one scenario in a process of its own under callgrind
//!  table.rs      the counts beside those of baseline.txt
//! ```
//!
//! Every scenario checks what it does when it is made ready. Run by `cargo test`, that is all.
#![allow(clippy::expect_used)]

mod canned;
mod count;
mod heads;
mod parts;
mod request;
mod scenario;
mod table;
mod texts;

use std::process::ExitCode;

use scenario::{Scenario, ALL};

const USAGE: &str = "usage: cargo bench --bench instructions -- [--update] [NAME ...]
  --update   write the counts to benches/instructions/baseline.txt
  NAME       count these only; --list says what there is";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [count::ONE, name] => {
            count::run_here(named(name).expect("a scenario"));
            ExitCode::SUCCESS
        }
        _ if arguments.contains(&"--list") => {
            for scenario in &ALL {
                println!("{:22}{}", scenario.name, scenario.what);
            }
            ExitCode::SUCCESS
        }
        _ if arguments.contains(&"--bench") => bench(&arguments),
        // From `cargo test`, whose filters and options are not for this.
        _ => {
            for scenario in &ALL {
                (scenario.prepare)()();
            }
            println!("{} scenarios do what they are to do", ALL.len());
            ExitCode::SUCCESS
        }
    }
}

fn named(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

fn bench(arguments: &[&str]) -> ExitCode {
    let mut update = false;
    let mut chosen = Vec::new();
    for &argument in arguments {
        match (argument, named(argument)) {
            ("--bench", _) => {}
            ("--update", _) => update = true,
            (_, Some(scenario)) => chosen.push(scenario),
            (unknown, None) => {
                eprintln!("there is no {unknown}\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if chosen.is_empty() {
        chosen.extend(&ALL);
    }
    let mut counts = Vec::new();
    for scenario in chosen {
        match count::of(scenario) {
            Ok(count) => counts.push((scenario, count)),
            Err(fault) => {
                eprintln!("{}: {fault}", scenario.name);
                return ExitCode::from(2);
            }
        }
    }
    table::report(&counts, update)
}
