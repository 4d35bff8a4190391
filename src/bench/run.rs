//! A load in threads: one reactor with a generator each.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{never, select, unbounded, Receiver, Sender};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use toron_reactor::sys::{self, process};
use toron_reactor::{
    mailbox, Address, Chosen, EngineConfig, EpollEngine, Mailbox, NativeEngine, Reactor, Service,
    Time, UringEngine,
};

use super::generator::{Command, Generator, Report};
use super::measurement::{Measurement, Observer};
use super::plan::Plan;

/// The load begins at the latest this long after the connections were begun, even if some do not
/// stand yet.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Buffers beyond one for each connection.
const SPARE_BUFFERS: usize = 256;
/// Exit status of a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Whether the user wants the end: SIGINT or SIGTERM. The second one ends the process at once.
#[derive(Clone, Debug)]
pub struct Interrupt {
    seen: Arc<AtomicBool>,
    news: Receiver<()>,
}

impl Interrupt {
    /// Takes the signals over.
    pub fn watch() -> io::Result<Interrupt> {
        let (sender, news) = unbounded();
        let seen = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&seen);
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in signals.forever() {
                    if flag.swap(true, Ordering::SeqCst) {
                        std::process::exit(INTERRUPTED);
                    }
                    // Whoever measures may have ended.
                    let _ = sender.send(());
                }
            })?;
        Ok(Interrupt { seen, news })
    }

    /// Never interrupted.
    #[must_use]
    pub fn never() -> Interrupt {
        Interrupt {
            seen: Arc::default(),
            news: never(),
        }
    }

    /// Whether it has come.
    #[must_use]
    pub fn is_seen(&self) -> bool {
        self.seen.load(Ordering::SeqCst)
    }

    /// Its coming.
    #[must_use]
    pub fn news(&self) -> &Receiver<()> {
        &self.news
    }
}

/// Puts the load on the target and waits for the end. Fails if a thread or an engine cannot be
/// had.
pub fn measure(
    plan: &Arc<Plan>,
    engine: Chosen,
    interrupt: &Interrupt,
    observer: &mut dyn Observer,
) -> io::Result<Measurement> {
    let (sender, reports) = unbounded();
    let mut threads = Vec::with_capacity(plan.threads);
    let mut addresses = Vec::with_capacity(plan.threads);
    for index in 0..plan.threads {
        let (address, mailbox) = mailbox();
        addresses.push(address);
        let (plan, sender) = (Arc::clone(plan), sender.clone());
        let body = move || match engine {
            Chosen::IoUring => generate::<UringEngine>(&plan, index, mailbox, sender),
            Chosen::Epoll => generate::<EpollEngine>(&plan, index, mailbox, sender),
        };
        let name = format!("bench-{index}");
        threads.push(thread::Builder::new().name(name).spawn(body)?);
    }
    drop(sender);
    let mut measurement = Measurement::new(plan.slice, plan.threads);
    measurement.open = await_ready(&reports, plan.threads, interrupt);
    tell(&addresses, Command::Begin(sys::monotonic()));
    collect(&reports, &addresses, interrupt, &mut measurement, observer);
    for thread in threads {
        let ended = thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("a generator panicked")))?;
    }
    measurement.end(observer);
    Ok(measurement)
}

fn tell(addresses: &[Address<Command>], command: Command) {
    for address in addresses {
        // A thread that has ended needs no telling.
        let _ = address.send(command);
    }
}

/// Waits until every connection has been tried, and says how many stand.
fn await_ready(reports: &Receiver<Report>, threads: usize, interrupt: &Interrupt) -> usize {
    let until = sys::monotonic() + CONNECT_PATIENCE;
    let (mut ready, mut stand) = (0, 0);
    while ready < threads && !interrupt.is_seen() {
        let left = until.since(sys::monotonic());
        let Ok(report) = reports.recv_timeout(left.min(Duration::from_millis(100))) else {
            if left.is_zero() {
                break;
            }
            continue;
        };
        if let Report::Ready { open } = report {
            ready += 1;
            stand += open;
        }
    }
    stand
}

fn collect(
    reports: &Receiver<Report>,
    addresses: &[Address<Command>],
    interrupt: &Interrupt,
    measurement: &mut Measurement,
    observer: &mut dyn Observer,
) {
    if interrupt.is_seen() {
        measurement.interrupted = true;
        tell(addresses, Command::Stop);
    }
    let mut news = interrupt.news().clone();
    loop {
        select! {
            recv(reports) -> report => match report {
                Ok(Report::Slice { index, record }) => measurement.slice(index, &record, observer),
                Ok(Report::Began) => observer.began(),
                Ok(Report::Done(last)) => measurement.thread_ended(&last),
                Ok(Report::Ready { open }) => measurement.open += open,
                Err(_) => return,
            },
            recv(news) -> _ => {
                measurement.interrupted = true;
                tell(addresses, Command::Stop);
                news = never();
            }
        }
    }
}

fn generate<E: NativeEngine>(
    plan: &Arc<Plan>,
    index: usize,
    mailbox: Mailbox<Command>,
    reports: Sender<Report>,
) -> io::Result<()> {
    process::sharpen_timers();
    let config = EngineConfig {
        buffers: plan.connections_of(index) + SPARE_BUFFERS,
        ..EngineConfig::default()
    };
    let generator = Generator::new(Arc::clone(plan), index, reports);
    let reactor = Reactor::<E, Generator>::new(E::open(&config)?, generator, mailbox);
    run_to_end(reactor, Generator::is_done)
}

/// Steps a reactor until its service says that it is done, and what it has closed is closed.
pub(super) fn run_to_end<E: NativeEngine, S: Service<E>>(
    mut reactor: Reactor<E, S>,
    is_done: impl Fn(&S) -> bool,
) -> io::Result<()> {
    while !is_done(reactor.service()) {
        reactor.step(None)?;
    }
    while reactor.stats().engine.sockets > 0 {
        reactor.step(Some(Time(0)))?;
    }
    Ok(())
}
