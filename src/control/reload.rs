//! Reloads: SIGHUP, `POST /internal/api/reload` and a file that has changed all come here, and are
//! carried out one after the other on a thread of its own. The outcome goes to the log, and to
//! whoever waits for it.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{unbounded, Receiver, RecvTimeoutError, Sender};
use serde::Serialize;

use super::admin::Ticket;
use super::config::finding::Finding;
use super::config::Rejected;
use super::publish::{Applied, Publisher};
use crate::http::Answer;
use crate::server::admin::desk::Reply;
use crate::server::shared::Shared;

/// While requests still use replaced snapshots, how often it is seen whether they have ended.
const FREEING: Duration = Duration::from_millis(500);

/// Who asks for a reload.
#[derive(Debug)]
pub enum Cause {
    /// SIGHUP.
    Signal,
    /// A file has changed (`server.watch`).
    File,
    /// The admin API.
    Question(Ticket),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Signal => "SIGHUP",
            Cause::File => "a file that has changed",
            Cause::Question(_) => "the admin API",
        })
    }
}

#[derive(Debug)]
enum Order {
    Reload(Cause),
    End,
}

/// Asks for reloads. Cloning gives another handle to the same thread.
#[derive(Clone, Debug)]
pub struct Reloads {
    orders: Sender<Order>,
}

impl Reloads {
    /// Starts the thread. Fails if it cannot be made.
    pub fn start(
        publisher: Arc<Publisher>,
        shared: Arc<Shared>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (orders, received) = unbounded();
        let thread = thread::Builder::new().name("reload".to_owned());
        let thread = thread.spawn(move || run(&publisher, &shared, &received))?;
        Ok((Reloads { orders }, thread))
    }

    /// Has both files read again. What is asked for while a reload is under way is one more reload
    /// behind it, however many ask.
    pub fn ask(&self, cause: Cause) {
        if let Err(error) = self.orders.send(Order::Reload(cause)) {
            if let Order::Reload(Cause::Question(ticket)) = error.0 {
                ticket.answer(Reply::of(Answer::AdminUnavailable));
            }
        }
    }

    /// Ends the thread when the reload under way is done.
    pub fn end(&self) {
        // Whoever has ended needs no telling.
        let _ = self.orders.send(Order::End);
    }
}

fn run(publisher: &Publisher, shared: &Shared, orders: &Receiver<Order>) {
    let mut in_use = 0;
    loop {
        let order = if in_use == 0 {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(FREEING)
        };
        let mut causes = Vec::new();
        match order {
            Ok(Order::Reload(cause)) => causes.push(cause),
            Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut ends = false;
        for order in orders.try_iter() {
            match order {
                Order::Reload(cause) => causes.push(cause),
                Order::End => ends = true,
            }
        }
        if !causes.is_empty() {
            reload(publisher, shared, causes);
        }
        if ends {
            return;
        }
        in_use = publisher.free_retired();
    }
}

fn reload(publisher: &Publisher, shared: &Shared, causes: Vec<Cause>) {
    let said: Vec<String> = causes.iter().map(ToString::to_string).collect();
    let said = said.join(", ");
    let reply = if shared.draining.load(Ordering::Relaxed) {
        log::warn!("{said}: not reloading, toron is ending");
        Reply::of(Answer::AdminUnavailable)
    } else {
        log::info!("reloading, asked by {said}");
        let outcome = publisher.reload();
        tell(&outcome);
        reply(&outcome)
    };
    for cause in causes {
        if let Cause::Question(ticket) = cause {
            ticket.answer(reply.clone());
        }
    }
}

/// To the log.
fn tell(outcome: &Result<Applied, Rejected>) {
    let applied = match outcome {
        Ok(applied) => applied,
        Err(rejected) => {
            for finding in &rejected.faults {
                log::error!("{finding}");
            }
            let count = rejected.faults.len();
            let noun = if count == 1 { "fault" } else { "faults" };
            log::error!("reload: nothing was changed ({count} {noun})");
            return;
        }
    };
    for warning in &applied.warnings {
        log::warn!("{warning}");
    }
    for what in &applied.needs_restart {
        log::warn!("reload: a change of {what} needs a restart; the rest is applied");
    }
    if applied.unresolved {
        log::warn!("reload: some upstream names are not resolved yet");
    }
    log::info!("reload: done");
}

/// The outcome as the admin API tells it.
#[derive(Serialize)]
struct Outcome<'a> {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    faults: Option<Vec<Place<'a>>>,
    warnings: Vec<Place<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_restart: Option<&'a [&'static str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    names_resolved: Option<bool>,
}

#[derive(Serialize)]
struct Place<'a> {
    /// `file:line:column`.
    place: String,
    message: &'a str,
}

fn places(findings: &[Finding]) -> Vec<Place<'_>> {
    let place = |finding: &Finding| match finding.mark.line {
        0 => finding.file.to_string(),
        line => format!("{}:{line}:{}", finding.file, finding.mark.column),
    };
    let place = |finding| Place {
        place: place(finding),
        message: finding.message.as_str(),
    };
    findings.iter().map(place).collect()
}

fn reply(outcome: &Result<Applied, Rejected>) -> Reply {
    let (status, told) = match outcome {
        Ok(applied) => (
            200,
            Outcome {
                outcome: "applied",
                error: None,
                faults: None,
                warnings: places(&applied.warnings),
                needs_restart: Some(&applied.needs_restart),
                names_resolved: Some(!applied.unresolved),
            },
        ),
        Err(rejected) => {
            let count = rejected.faults.len();
            let noun = if count == 1 { "fault" } else { "faults" };
            let error = format!(
                "422 Unprocessable Content: nothing was changed ({count} {noun} in the files)"
            );
            let told = Outcome {
                outcome: "rejected",
                error: Some(error),
                faults: Some(places(&rejected.faults)),
                warnings: places(&rejected.warnings),
                needs_restart: None,
                names_resolved: None,
            };
            (422, told)
        }
    };
    let text = serde_json::to_string(&told).unwrap_or_else(|error| format!("{error:?}"));
    Reply::json(status, text)
}
