//! `toron tune`, from the command line to its exit status.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::args::{Action, Json, TuneArgs};
use super::measure::{self, output, Candidate, Outline};
use super::row::{on_one_line, Group, Row, Verdict};
use super::{apply, change, emit, json, probes, table, undo};
use crate::control::config::values::show_duration;
use crate::control::config::{load, load_texts, Inputs, Loaded, SYSTEM_FOLDER};
use crate::control::machine::Machine;
use crate::control::needs::{grouped, show_clients_and_source};
use crate::control::resolve::Endpoints;
use crate::policy::demand::Demand;

/// Routes that stand for those of an operator who has none yet.
const EXAMPLE_ROUTES: &str = "routes:\n  - target: http://127.0.0.1:9000\n";

/// What is audited for what.
struct Audit {
    machine: Machine,
    demand: Demand,
    /// The files it comes from; none for the defaults.
    files: Vec<String>,
    groups: Vec<Group>,
}

/// Runs the command.
#[must_use]
pub fn run(args: &TuneArgs) -> ExitCode {
    let outcome = match args.action {
        Action::Undo => run_undo(args),
        _ if args.measure.is_some() => audit(args).and_then(|audit| run_measure(args, &audit)),
        Action::Show => audit(args).and_then(|audit| show(args, &audit)),
        Action::Apply => audit(args).and_then(|audit| run_apply(args, &audit)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("toron: {error}");
            ExitCode::FAILURE
        }
    }
}

fn audit(args: &TuneArgs) -> Result<Audit, String> {
    let loaded = configuration(args)?;
    let files = loaded.files.iter().map(|file| file.display().to_string());
    let mut machine = Machine::at(&args.root);
    if let Some(pid) = process(args, &machine)? {
        let own = namespace(&machine)?;
        machine = machine.of_process(pid);
        require_namespace(&machine, pid, &own)?;
    }
    let demand = Demand::of(&loaded.snapshot);
    let groups = probes::audit(&machine, &demand);
    Ok(Audit {
        files: files.collect(),
        machine,
        demand,
        groups,
    })
}

/// The process to audit for. That of the machine's own file is not found in a copy of another one.
fn process(args: &TuneArgs, machine: &Machine) -> Result<Option<u32>, String> {
    match &args.measure {
        Some(measure) if args.pid.is_none() && machine.is_here() => measure.pid_in_file(),
        _ => Ok(args.pid),
    }
}

fn namespace(machine: &Machine) -> Result<PathBuf, String> {
    let link = std::fs::read_link(machine.path("/proc/self/ns/net"));
    link.map_err(|error| format!("the network namespace of a process is unknown: {error}"))
}

/// The settings of another namespace are not those that the process feels.
fn require_namespace(machine: &Machine, pid: u32, own: &Path) -> Result<(), String> {
    if !machine.has("/proc/self/status") {
        return Err(format!("there is no process {pid}"));
    }
    let its = namespace(machine)?;
    if its != own {
        return Err(format!(
            "process {pid} lives in another network namespace ({}): run this there (nsenter -t \
             {pid} -n toron tune …)",
            its.display()
        ));
    }
    Ok(())
}

/// The configuration of the command line, or of the usual places; where there is none at all, the
/// defaults with one upstream.
fn configuration(args: &TuneArgs) -> Result<Loaded, String> {
    let mut endpoints = Endpoints::default();
    let found = ["config.yaml", "toron.yaml"]
        .iter()
        .any(|name| Path::new(name).exists() || Path::new(SYSTEM_FOLDER).join(name).exists());
    let named = args.files.config.is_some() || args.files.routes.is_some();
    let loaded = if found || named {
        let files = args.files.clone();
        load(
            &Inputs::from_environment(files.config, files.routes),
            &mut endpoints,
        )
    } else {
        load_texts("server: {}\n", Some(EXAMPLE_ROUTES), &mut endpoints)
    };
    loaded.map_err(|rejected| {
        let faults: Vec<String> = rejected.faults.iter().map(ToString::to_string).collect();
        format!("the configuration has faults\n{}", faults.join("\n"))
    })
}

/// Writes to standard output. A reader that has gone (`toron tune | head`) is no failure.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

fn write_json(
    args: &TuneArgs,
    audit: &Audit,
    measured: &BTreeMap<String, Value>,
) -> Result<(), String> {
    let Some(json) = &args.json else {
        return Ok(());
    };
    let text = json::write(&audit.groups, &audit.demand, &audit.files, measured)
        .map_err(|error| format!("cannot make JSON: {error}"))?;
    match json {
        Json::Stdout => print(&text),
        Json::File(path) => std::fs::write(path, text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?,
    }
    Ok(())
}

fn show(args: &TuneArgs, audit: &Audit) -> Result<bool, String> {
    write_json(args, audit, &BTreeMap::new())?;
    if let Some(folder) = &args.emit {
        let chosen = change::chosen(&audit.groups, &args.only)?;
        let (machine, demand) = (&audit.machine, &audit.demand);
        let files = emit::emit(folder, machine, demand, &audit.groups, &chosen)
            .map_err(|error| format!("cannot write the files: {error}"))?;
        for file in files {
            eprintln!("written: {}", file.display());
        }
    }
    let is_missing = |row: &Row| row.verdict == Verdict::Missing;
    let missing = audit.groups.iter().flat_map(|g| &g.rows).any(is_missing);
    if args.json != Some(Json::Stdout) {
        if args.check {
            print(&table::missing(&audit.groups));
        } else if args.emit.is_none() {
            print(&heading(audit));
            print(&table::full(&audit.groups));
        }
    }
    Ok(!(args.check && missing))
}

/// What the audit is for.
fn heading(audit: &Audit) -> String {
    let demand = &audit.demand;
    let files = match audit.files.is_empty() {
        true => "no configuration; the defaults, with one upstream, are assumed".to_owned(),
        false => audit.files.join(", "),
    };
    let size = format!(
        "for {}, {} {}, {} reactors",
        show_clients_and_source(demand),
        grouped(demand.targets),
        match demand.targets {
            1 => "upstream target",
            _ => "upstream targets",
        },
        grouped(demand.reactors)
    );
    table::heading(&[("toron tune:", &size), ("read:", &files)])
}

/// Values of this machine are the administrator's; those of a copied tree whoever's it is.
fn require_root(machine: &Machine) -> Result<(), String> {
    if !machine.is_here() {
        return Ok(());
    }
    let user = machine.status("Uid")?;
    let effective = user.split_whitespace().nth(1);
    if effective != Some("0") {
        return Err("only root may change kernel settings (try sudo)".to_owned());
    }
    Ok(())
}

fn confirmed(args: &TuneArgs, question: &str) -> bool {
    if args.yes {
        return true;
    }
    print(&format!("{question} [y/N] "));
    let _ = io::stdout().flush();
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    let yes = read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes");
    if !yes {
        print("nothing was changed\n");
    }
    yes
}

fn run_apply(args: &TuneArgs, audit: &Audit) -> Result<bool, String> {
    let machine = &Machine::at(&args.root);
    require_root(machine)?;
    let chosen = change::chosen(&audit.groups, &args.only)?;
    let changes = change::sysctls(&chosen);
    for row in &chosen {
        if !changes.iter().any(|change| change.name == row.name) {
            let line = format!(
                "{}: is no kernel setting (see --emit, or the table)\n",
                row.name
            );
            print(&line);
        }
    }
    if changes.is_empty() {
        print("no kernel setting is to be changed\n");
        return Ok(true);
    }
    for change in &changes {
        let present = change::read(machine, &change.name)
            .map_or_else(|why| format!("unknown: {why}"), |text| on_one_line(&text));
        print(&format!("{}: {present} → {}\n", change.name, change.value));
    }
    if !confirmed(args, "Set these values now?") {
        return Ok(false);
    }
    let applied = apply::apply(machine, &changes, &args.journal)
        .map_err(|error| format!("{}: {error}", args.journal.display()))?;
    for line in &applied.lines {
        print(&format!("{line}\n"));
    }
    print("toron tune --undo puts the old values back; a restart of the machine does, too\n");
    Ok(applied.failed == 0)
}

/// The rows to try: all kernel settings with a proposal, or those that were named.
fn candidates<'a>(args: &TuneArgs, audit: &'a Audit) -> Result<Vec<(&'a Row, Candidate)>, String> {
    let rows = match args.only.is_empty() {
        true => change::proposed(&audit.groups),
        false => change::chosen(&audit.groups, &args.only)?,
    };
    let mut found = Vec::new();
    for row in rows {
        match change::sysctls(&[row]).pop() {
            Some(change) => {
                let effect = row.effect;
                found.push((row, Candidate { change, effect }));
            }
            None if args.only.is_empty() => {}
            None => return Err(format!("--only {}: is no kernel setting", row.name)),
        }
    }
    Ok(found)
}

/// What is about to be done, for the question.
fn plan_in_words(candidates: &[(&Row, Candidate)], outline: Outline, keep: bool) -> String {
    let mut text = String::new();
    for (row, candidate) in candidates {
        let present = row.present.as_deref().map(on_one_line).unwrap_or_default();
        text.push_str(&format!(
            "{}: {present} → {}\n",
            row.name, candidate.change.value
        ));
    }
    let end = match keep {
        true => "put back unless it helps",
        false => "put back",
    };
    let time = show_duration(Duration::from_secs(outline.time.as_secs().max(1)));
    text + &table::paragraph(&format!(
        "{} of these can be measured: {} rounds each, about {time} of load. Each is changed to and \
         fro, and {end}.",
        outline.settings, outline.rounds,
    ))
}

fn run_measure(args: &TuneArgs, audit: &Audit) -> Result<bool, String> {
    let machine = &Machine::at(&args.root);
    require_root(machine)?;
    let Some(measure) = &args.measure else {
        return Ok(false);
    };
    let keep = args.action == Action::Apply;
    let rows = candidates(args, audit)?;
    let speaks = args.json != Some(Json::Stdout);
    if rows.is_empty() {
        if speaks {
            print("no kernel setting is proposed, so there is nothing to try\n");
        }
        write_json(args, audit, &BTreeMap::new())?;
        return Ok(true);
    }
    let candidates: Vec<Candidate> = rows.iter().map(|(_, c)| c.clone()).collect();
    if speaks {
        let outline = measure::outline(&candidates, measure);
        print(&plan_in_words(&rows, outline, keep));
    }
    if !confirmed(args, "Try them now?") {
        return Ok(false);
    }
    let study = measure::study(machine, &candidates, measure, &args.journal, keep)?;
    let tried = || rows.iter().map(|(row, _)| *row).zip(&study.tried);
    if speaks {
        let lines = tried().map(|(row, tried)| (row, output::lines(tried)));
        print(&format!("\n{}", table::tried(&lines.collect::<Vec<_>>())));
        print(&table::paragraph(&output::method(&study)));
        print(&table::paragraph(&output::ending(&study)));
    }
    let json = tried().map(|(row, tried)| (row.name.clone(), output::json(tried, &study)));
    write_json(args, audit, &json.collect())?;
    for fault in &study.faults {
        eprintln!("toron: {fault}");
    }
    Ok(study.faults.is_empty())
}

fn run_undo(args: &TuneArgs) -> Result<bool, String> {
    let machine = Machine::at(&args.root);
    require_root(&machine)?;
    if args.journal.exists() && !confirmed(args, "Put the old values back now?") {
        return Ok(false);
    }
    let undone = undo::undo(&machine, &args.journal)
        .map_err(|error| format!("{}: {error}", args.journal.display()))?;
    for line in &undone.lines {
        print(&format!("{line}\n"));
    }
    Ok(undone.failed == 0)
}
