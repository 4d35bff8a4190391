//! What every drill has: a toron between an origin and its clients, the bystanders, and what is said
//! about the attack afterwards.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::attackers::Met;
use crate::bystander::{Bystander, Times};
use crate::priority;
use crate::support::client::Client;
use crate::support::metrics::{fetch, Format};
use crate::support::process::{OnDrop, Process};
use crate::support::readout::KEY;
use crate::support::setup::{Engine, Route, Settings};
use crate::support::toron::{listening_on, Toron};
use crate::support::{raise_descriptor_limit, soak, PATIENCE};

/// What a connection takes without its buffers: session, timer, entry of its address, and for some
/// the exchange with the upstream.
pub const PER_CONNECTION_KIB: u64 = 4;
pub const BUFFER_KIB: u64 = 64;
/// What a proxied connection takes with a full buffer for each direction.
pub const PER_EXCHANGE_KIB: u64 = PER_CONNECTION_KIB + 2 * BUFFER_KIB;
/// What may come with any attack: the list of refusals (7 MB when all its rings are full), buffers
/// that the pools keep and that those are told with who are refused, and what the allocator keeps.
pub const WITH_ANY_ATTACK_KIB: u64 = 12 * 1024;

/// How long a long form attacks, and how long it is quiet before.
const LONG: Duration = Duration::from_secs(20);
const QUIET: Duration = Duration::from_secs(10);
/// In the short form quiet is only there to warm up.
const WARM: Duration = Duration::from_millis(300);

/// Whose requests must go well: nobody attacks from there.
pub const BYSTANDER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 77, 1));

/// A client that does no harm: where it connects from, and what fields it sends.
pub type Harmless = (IpAddr, &'static str);

pub struct Scene {
    name: &'static str,
    engine: Engine,
    pub toron: Toron,
    _origin: Process,
    harmless: Vec<Harmless>,
    quiet: Vec<Times>,
    resident_kib: u64,
}

/// The figures of one drill.
pub struct Outcome {
    pub met: Met,
    pub grown_kib: u64,
}

impl Scene {
    /// Starts everything, and looks for a while at what it is like without an attack.
    pub fn set(
        name: &'static str,
        engine: Engine,
        firewall: &[(&'static str, &str)],
        harmless: &[Harmless],
    ) -> Scene {
        Scene::set_with(name, engine, &[], firewall, harmless)
    }

    /// The same, with settings of `server`.
    pub fn set_with(
        name: &'static str,
        engine: Engine,
        server: &[(&'static str, &str)],
        firewall: &[(&'static str, &str)],
        harmless: &[Harmless],
    ) -> Scene {
        raise_descriptor_limit();
        let mut command = priority::elsewhere(env!("CARGO_BIN_EXE_toron"));
        command.args(["upstream", "--listen", "127.0.0.1:0"]);
        command.env("RUST_LOG", "info");
        let origin = Process::spawn(command, "the origin", OnDrop::Kill);
        let addr = origin.wait_line(PATIENCE, listening_on);
        let mut settings = Settings::new(engine, vec![Route::new("/", &addr)]);
        settings.admin_key = Some(KEY.into());
        settings.server = server
            .iter()
            .map(|(key, value)| (*key, (*value).to_owned()))
            .collect();
        let written = firewall.iter().map(|(k, v)| (*k, (*v).to_owned()));
        settings.firewall = [("enabled", "true".to_owned())]
            .into_iter()
            .chain(written)
            .collect();
        let toron = Toron::start(&settings);
        let mut scene = Scene {
            name,
            engine,
            toron,
            _origin: origin,
            harmless: harmless.to_vec(),
            quiet: Vec::new(),
            resident_kib: 0,
        };
        let asking = scene.bystanders();
        std::thread::sleep(if soak() { QUIET } else { WARM });
        scene.quiet = asking.into_iter().map(Bystander::stop).collect();
        scene.toron.proc().reset_peak();
        scene.resident_kib = scene.toron.proc().resident_kib();
        scene
    }

    pub fn addr(&self) -> SocketAddr {
        self.toron.addr
    }

    fn bystanders(&self) -> Vec<Bystander> {
        let start = |(source, fields): &Harmless| Bystander::start(*source, self.addr(), fields);
        self.harmless.iter().map(start).collect()
    }

    /// Lets `attack` go on until what it is there for has happened, in the long form for some time at
    /// least, while the bystanders ask. `attack` says what it has met with in the end.
    pub fn attacked(&self, attack: impl FnOnce(&dyn Fn(&dyn Fn() -> bool)) -> Met) -> Outcome {
        let asking = self.bystanders();
        let began = Instant::now();
        let met = attack(&|happened| {
            while !happened() || (soak() && began.elapsed() < LONG) {
                let too_late = began.elapsed() > LONG + 5 * PATIENCE;
                assert!(
                    !too_late,
                    "{}: what was awaited has not happened",
                    self.name
                );
                if !asking.iter().all(Bystander::is_content) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let during: Vec<Times> = asking.into_iter().map(Bystander::stop).collect();
        let grown_kib = self
            .toron
            .proc()
            .peak_kib()
            .saturating_sub(self.resident_kib);
        let outcome = Outcome { met, grown_kib };
        self.tell(&outcome, &during, began.elapsed());
        outcome
    }

    /// Prints figures; in the long form the time of harmless requests has a bound.
    fn tell(&self, outcome: &Outcome, during: &[Times], took: Duration) {
        let (name, engine) = (self.name, self.engine.name());
        let met = &outcome.met;
        println!(
            "{name}, {engine}: {:.1} s, {} connects ({} failed, {} reset, {} ended), answers {:?}; \
             memory {} KiB more at the most",
            took.as_secs_f64(),
            met.connects,
            met.failed,
            met.resets,
            met.ends,
            met.answers,
            outcome.grown_kib
        );
        for (before, during) in self.quiet.iter().zip(during) {
            assert!(during.count() > 0, "{name}: nobody asked");
            let (idle, busy) = (before.percentile(99), during.percentile(99));
            println!(
                "    harmless: {} requests, p50 {} µs, p99 {busy} µs; before the attack p50 {} µs, p99 \
                 {idle} µs",
                during.count(),
                during.percentile(50),
                before.percentile(50)
            );
            let bearable = busy < 10 * idle || busy < idle + 5_000;
            assert!(
                !soak() || bearable,
                "{name}, {engine}: p99 {idle} µs → {busy} µs"
            );
        }
    }

    /// What a metric says, all series with these labels added up.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let text = String::from_utf8(fetch(&self.toron, Format::Text)).unwrap();
        let has = |series: &str| {
            labels
                .iter()
                .all(|(label, value)| series.contains(&format!("{label}=\"{value}\"")))
        };
        let value = |line: &str| -> Option<u64> {
            let (series, value) = line.rsplit_once(' ')?;
            let its = series.split('{').next() == Some(name);
            (its && has(series)).then(|| value.parse::<f64>().unwrap() as u64)
        };
        text.lines().filter_map(value).sum()
    }

    pub fn refused_for(&self, reason: &str) -> u64 {
        self.metric("toron_refusals_total", &[("reason", reason)])
    }

    /// What an endpoint of the admin API says.
    pub fn ask(&self, path: &str) -> Value {
        let mut client = Client::connect(self.addr(), PATIENCE).unwrap();
        let request = format!(
            "GET /internal/api/{path} HTTP/1.1\r\nHost: t\r\nX-Toron-Admin-Key: {KEY}\r\n\
             Connection: close\r\n\r\n"
        );
        client.send(request.as_bytes(), PATIENCE);
        assert!(client.receive_responses(1, PATIENCE), "{path}: no answer");
        serde_json::from_slice(&client.parsed().responses[0].body).unwrap()
    }

    /// The newest refusal for `reason` names this limit and value, where it was set, and an attacker;
    /// no refusal names anybody else.
    pub fn explains(
        &self,
        reason: &str,
        (setting, value, set_by): (&str, u64, &str),
        is_attacker: impl Fn(IpAddr) -> bool,
    ) {
        let list = self.ask("refusals");
        let list = list.as_array().unwrap();
        for entry in list {
            let client: IpAddr = entry["client"].as_str().unwrap().parse().unwrap();
            assert!(is_attacker(client), "{entry}");
        }
        let entry = list.iter().find(|entry| entry["reason"] == reason);
        let entry = entry.unwrap_or_else(|| panic!("nobody was refused for {reason}"));
        let limit = &entry["limit"];
        assert_eq!(
            (&limit["setting"], &limit["value"]),
            (&setting.into(), &value.into()),
            "{entry}"
        );
        assert_eq!(limit["set_by"], set_by, "{entry}");
        let place = limit["set_at"].as_str().unwrap();
        let placed = if set_by == "default" {
            place == "default"
        } else {
            place.contains("config.yaml:")
        };
        assert!(placed, "{entry}");
        assert!(entry["observed"].is_u64(), "{entry}");
    }

    /// The addresses that are blocked, in order.
    pub fn blocked(&self) -> Vec<String> {
        let list = self.ask("firewall");
        let blocks = list["blocks"].as_array().unwrap().iter();
        let mut all: Vec<String> = blocks
            .map(|block| {
                block["addresses"]
                    .as_str()
                    .unwrap()
                    .trim_end_matches("/32")
                    .to_owned()
            })
            .collect();
        all.sort();
        all
    }
}

impl Outcome {
    /// Memory has stayed within what `parts` (how many, KiB for each) and any attack may take.
    pub fn bounded(&self, parts: &[(u64, u64)]) {
        let own: u64 = parts.iter().map(|(count, kib)| count * kib).sum();
        let bound = own + WITH_ANY_ATTACK_KIB;
        assert!(self.grown_kib <= bound, "{} of {bound} KiB", self.grown_kib);
    }
}
