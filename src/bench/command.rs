//! `toron bench` from its arguments to its exit status.

use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{json, Value};
use toron_reactor::sys::process;
use toron_reactor::Chosen;

use super::args::{BenchArgs, Sink, Target};
use super::attack::{Attack, AttackPlan, AttackSpec, AttackStats};
use super::compare::{self, Meter, Round};
use super::measurement::Measurement;
use super::output::{file_of, print, write_file, write_json, Follower, Outcome};
use super::plan::{slice_for, Load, Plan};
use super::process::Usage;
use super::report::{self, Page};
use super::run::{measure, Interrupt};
use super::text::grouped;
use super::verdict::Verdict;
use super::{csv, hdr, machine, text};

/// Runs it and writes the results. Exit status 0: it was measured.
#[must_use]
pub fn run(args: &BenchArgs) -> ExitCode {
    match bench(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("toron bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What all ways of measuring need.
#[derive(Debug)]
struct Bench<'a> {
    args: &'a BenchArgs,
    interrupt: Interrupt,
    chosen: Chosen,
    engine: &'static str,
    /// Standard output is for people.
    speaks: bool,
}

/// What was found, for all outputs.
struct Findings {
    outcomes: Vec<Outcome>,
    /// Paragraphs beside the tables.
    text: String,
    json: Value,
}

/// What could be known before the load is not to be told after it.
fn folders_are_there(args: &BenchArgs) -> Result<(), String> {
    let files = &args.files;
    let json = match &args.json {
        Some(Sink::File(path)) => Some(path),
        Some(Sink::Stdout) | None => None,
    };
    let named = [&files.csv, &files.hgrm, &files.hlog, &files.report];
    let named = named.into_iter().filter_map(Option::as_ref).chain(json);
    for file in named {
        let folder = file
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let (file, folder) = (file.display(), folder.display());
            return Err(format!("cannot write {file}: there is no folder {folder}"));
        }
    }
    Ok(())
}

fn bench(args: &BenchArgs) -> Result<(), String> {
    let interrupt = Interrupt::watch().map_err(|error| error.to_string())?;
    if let Err(error) = process::raise_descriptor_limit() {
        log::warn!("cannot raise the limit of descriptors: {error}");
    }
    let (chosen, _) = args.engine.choose().map_err(|error| error.to_string())?;
    let bench = Bench {
        args,
        interrupt,
        chosen,
        engine: match chosen {
            Chosen::IoUring => "io_uring",
            Chosen::Epoll => "epoll",
        },
        speaks: args.json != Some(Sink::Stdout),
    };
    folders_are_there(args)?;
    let findings = match (&args.targets[..], args.attack) {
        ([target], Some(spec)) => bench.attack(target, spec)?,
        ([target], None) => bench.single(target)?,
        (targets, _) => bench.compare(targets)?,
    };
    bench.write(&findings)?;
    findings.outcomes.iter().try_for_each(was_measured)
}

/// The plan of a load on one target, which must be there: somebody listens, and its processes run.
/// Resolves its name. The error is for people.
pub fn plan(args: &BenchArgs, target: &Target) -> Result<Arc<Plan>, String> {
    let load = match args.rate {
        Some(rate) => Load::Open {
            profile: rate.over(args.duration),
            arrivals: args.arrivals,
        },
        None => Load::Closed {
            duration: args.duration,
        },
    };
    let plan = Plan {
        addr: target.url.resolve()?,
        requests: args
            .requests
            .iter()
            .map(|r| r.prepare(&target.url))
            .collect(),
        slice: slice_for(load.duration()),
        load,
        connections: args.connections,
        threads: args.threads(),
        pipeline: args.pipeline,
        keep_alive: args.keep_alive,
        warmup: args.warmup(),
        timeout: args.timeout,
        seed: args.seed,
    };
    let patience = plan.timeout.max(Duration::from_millis(1));
    TcpStream::connect_timeout(&plan.addr, patience)
        .map_err(|error| format!("cannot connect to {} ({}): {error}", target.url, plan.addr))?;
    if let Some(pid) = target.pids.iter().find(|pid| Usage::of(**pid).is_none()) {
        return Err(format!("there is no process {pid}"));
    }
    Ok(Arc::new(plan))
}

impl Bench<'_> {
    fn outcome(&self, target: &Target, name: &str, plan: &Arc<Plan>) -> Result<Outcome, String> {
        let mut follower = Follower::new(self.args, plan)?;
        let mut meter = Meter::new(target.pids.clone(), plan.load.duration(), &mut follower);
        let measured = measure(plan, self.chosen, &self.interrupt, &mut meter);
        let usage = meter.used();
        follower.end()?;
        let measured = measured.map_err(|error| error.to_string())?;
        Ok(Outcome {
            name: name.to_owned(),
            url: target.url.to_string(),
            plan: Arc::clone(plan),
            verdict: Verdict::of(plan, &measured),
            measured,
            usage,
        })
    }

    fn introduce(&self, target: &Target, plan: &Plan) -> Result<(), String> {
        match self.speaks {
            true => print(&text::introduction(
                &target.url.to_string(),
                self.engine,
                plan,
            )),
            false => Ok(()),
        }
    }

    fn json_of(&self, outcome: &Outcome) -> Value {
        let mut value = super::json::measurement(
            &outcome.url,
            self.engine,
            &outcome.plan,
            &outcome.measured,
            &outcome.verdict,
        );
        let answers = outcome.measured.total.counts.completed;
        let cpu = outcome
            .usage
            .map(|usage| compare::usage_json(&usage, answers));
        set(&mut value, "name", json!(outcome.name));
        set(&mut value, "target_cpu", json!(cpu));
        value
    }

    fn single(&self, target: &Target) -> Result<Findings, String> {
        let plan = plan(self.args, target)?;
        self.introduce(target, &plan)?;
        let outcome = self.outcome(target, &target.name, &plan)?;
        Ok(Findings {
            text: text_of(&outcome),
            json: self.json_of(&outcome),
            outcomes: vec![outcome],
        })
    }

    /// The load alone, then beside the attack.
    fn attack(&self, target: &Target, spec: AttackSpec) -> Result<Findings, String> {
        let plan = plan(self.args, target)?;
        self.introduce(target, &plan)?;
        let before = self.outcome(target, "without", &plan)?;
        let attack = AttackPlan {
            spec,
            addr: plan.addr,
            url: target.url.clone(),
            interval: self.args.attack_interval,
        };
        let attack = Attack::start(attack, self.chosen).map_err(|error| error.to_string())?;
        let beside = self.outcome(target, spec.kind.name(), &plan);
        let stats = attack.stop().map_err(|error| error.to_string())?;
        let beside = beside?;
        let mut value = self.json_of(&beside);
        set(
            &mut value,
            "attack",
            json!({
                "kind": spec.kind.name(),
                "connections": spec.connections,
                "attackers": stats.json(),
                "without": self.json_of(&before),
            }),
        );
        Ok(Findings {
            text: attack_text(spec, &stats, &before, &beside),
            json: value,
            outcomes: vec![before, beside],
        })
    }

    /// The targets in turn, round by round.
    fn compare(&self, targets: &[Target]) -> Result<Findings, String> {
        let plans = targets.iter().map(|target| plan(self.args, target));
        let plans: Vec<Arc<Plan>> = plans.collect::<Result<_, _>>()?;
        for (target, plan) in targets.iter().zip(&plans) {
            self.introduce(target, plan)?;
        }
        let mut sums: Vec<Option<Outcome>> = targets.iter().map(|_| None).collect();
        let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); targets.len()];
        for round in 0..self.args.rounds {
            let mut order: Vec<usize> = (0..targets.len()).collect();
            // Who comes second in one round comes first in the next.
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let (Some(target), Some(plan)) = (targets.get(at), plans.get(at)) else {
                    continue;
                };
                let plan = Arc::new(part_of(plan, self.args.rounds, round));
                let outcome = self.outcome(target, &target.name, &plan)?;
                if let Some(rounds) = rounds.get_mut(at) {
                    rounds.push(Round::of(&outcome.measured, outcome.usage.as_ref()));
                }
                if let Some(sum) = sums.get_mut(at) {
                    add(sum, outcome);
                }
            }
            if self.interrupt.is_seen() {
                break;
            }
        }
        let outcomes: Vec<Outcome> = sums.into_iter().flatten().collect();
        Ok(self.compared(outcomes, &rounds))
    }

    fn compared(&self, outcomes: Vec<Outcome>, rounds: &[Vec<Round>]) -> Findings {
        let mut text = String::new();
        let mut ratios = serde_json::Map::new();
        for outcome in &outcomes {
            text += &format!("\n{} ({})", outcome.name, outcome.url);
            text += &text_of(outcome);
        }
        if let ([base, others @ ..], [first, rest @ ..]) = (&outcomes[..], rounds) {
            for (other, its) in others.iter().zip(rest) {
                let found = compare::ratios(first, its, self.args.seed);
                text += &compare::text(&base.name, &other.name, &found);
                ratios.insert(other.name.clone(), compare::json(&found));
            }
        }
        let method = compare::method(rounds.iter().map(Vec::len).min().unwrap_or(0));
        text += &format!("  {method}\n");
        let mode = outcomes.first().map(|o| o.plan.load.mode());
        let targets: Vec<Value> = outcomes.iter().map(|o| self.json_of(o)).collect();
        let base = outcomes.first().map(|o| o.name.clone());
        Findings {
            json: json!({
                "mode": mode,
                "compare": { "base": base, "method": method, "ratios": ratios },
                "targets": targets,
            }),
            text,
            outcomes,
        }
    }

    fn write(&self, findings: &Findings) -> Result<(), String> {
        let facts = machine::describe();
        if self.speaks {
            print(&findings.text)?;
        }
        if let Some(sink) = &self.args.json {
            let mut value = findings.json.clone();
            let facts = facts
                .iter()
                .map(|(name, value)| (name.clone(), json!(value)));
            set(&mut value, "machine", Value::Object(facts.collect()));
            write_json(sink, &value)?;
        }
        let files = &self.args.files;
        if let Some(path) = &files.csv {
            let lines = findings
                .outcomes
                .iter()
                .map(|o| csv::lines(&o.name, &o.measured.series));
            write_file(path, &(csv::HEAD.to_owned() + &lines.collect::<String>()))?;
        }
        if let Some(path) = &files.hgrm {
            let alone = findings.outcomes.len() == 1;
            for outcome in &findings.outcomes {
                let path = file_of(path, &outcome.name, alone);
                write_file(&path, &hdr::hgrm(&outcome.measured.total.latency))?;
            }
        }
        let page = Page {
            outcomes: &findings.outcomes,
            engine: self.engine,
            text: &findings.text,
            machine: &facts,
        };
        if let Some(path) = &files.report {
            write_file(path, &report::html(&page))?;
        }
        if let Some(folder) = &files.svg {
            let told = |error| format!("cannot make {}: {error}", folder.display());
            std::fs::create_dir_all(folder).map_err(told)?;
            for (name, svg) in report::plots(&page) {
                write_file(&folder.join(format!("{name}.svg")), &svg)?;
            }
        }
        Ok(())
    }
}

fn set(value: &mut Value, key: &str, to: Value) {
    if let Some(map) = value.as_object_mut() {
        map.insert(key.to_owned(), to);
    }
}

/// One round's share of a plan.
fn part_of(plan: &Plan, rounds: u32, round: u32) -> Plan {
    let rounds = rounds.max(1);
    let load = match &plan.load {
        Load::Closed { duration } => Load::Closed {
            duration: *duration / rounds,
        },
        Load::Open { profile, arrivals } => Load::Open {
            profile: profile.part(rounds),
            arrivals: *arrivals,
        },
    };
    Plan {
        slice: slice_for(load.duration()),
        warmup: plan.warmup / rounds,
        load,
        seed: plan.seed.wrapping_add(u64::from(round)),
        ..plan.clone()
    }
}

/// Adds a round to the sum of those before.
fn add(sum: &mut Option<Outcome>, outcome: Outcome) {
    let Some(sum) = sum else {
        *sum = Some(outcome);
        return;
    };
    sum.measured.append(&outcome.measured);
    if let (Some(total), Some(usage)) = (&mut sum.usage, &outcome.usage) {
        total.add(usage);
    }
    sum.verdict = Verdict::of(&sum.plan, &sum.measured);
}

fn text_of(outcome: &Outcome) -> String {
    let mut out = text::result(&outcome.plan, &outcome.measured, &outcome.verdict);
    if let Some(usage) = &outcome.usage {
        out += &compare::usage_text(usage, outcome.measured.total.counts.completed);
    }
    out
}

fn attack_text(
    spec: AttackSpec,
    stats: &AttackStats,
    before: &Outcome,
    beside: &Outcome,
) -> String {
    let name = spec.kind.name();
    let mut out = format!("\nwithout the attack{}", text_of(before));
    out += &format!(
        "\nbeside {name}, {} connections{}",
        spec.connections,
        text_of(beside)
    );
    out += &format!("\n  attackers   {}\n  felt        ", stats.text());
    let quantiles = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
    let felt = quantiles.map(|(label, q)| {
        let of = |outcome: &Outcome| outcome.measured.total.latency.value_at_quantile(q);
        let (was, is) = (of(before).max(1), of(beside));
        format!("{label} {:.2}×", is as f64 / was as f64)
    });
    out + &felt.join(", ") + " of the latency without\n"
}

/// An error if there is not one sample, with what happened instead.
fn was_measured(outcome: &Outcome) -> Result<(), String> {
    let measured: &Measurement = &outcome.measured;
    if measured.has_samples() {
        return Ok(());
    }
    let counts = &measured.total.counts;
    let what: Vec<String> = counts
        .failures()
        .map(|(kind, n)| format!("{} {}", grouped(n), kind.name()))
        .collect();
    let url = &outcome.url;
    Err(match (measured.interrupted, what.is_empty()) {
        (_, false) => format!(
            "nothing was measured: {url} gave no response ({})",
            what.join(", ")
        ),
        (true, true) => "nothing was measured: interrupted before the warm-up ended".to_owned(),
        (false, true) => "nothing was measured: no request was due".to_owned(),
    })
}
