//! Decisions, deadlines and the lines of the log.

use std::fmt::Write as _;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use toron::control::config::load_texts;
use toron::control::resolve::Endpoints;
use toron::http::{field_slots, request, HeadLimits};
use toron::policy::firewall::{Client, Decision, Firewall, Rules};
use toron::policy::router::Lookup;
use toron::policy::settings::LogFormat;
use toron::policy::snapshot::Snapshot;
use toron::proxy::facts::{Facts, Limits, ResponseFacts};
use toron::proxy::input::{Input, Side};
use toron::proxy::transaction::Transaction;
use toron::server::access_line::{Line, Times};
use toron::server::describe::Description;
use toron_reactor::{Key, Time, Token, Wheel};

use super::scenario::Run;
use super::texts::BROWSER;

const ADDRESSES: u32 = 10_000;
/// Between one operation and the next.
const STEP: Duration = Duration::from_micros(1);

fn loaded(routes: &str) -> Snapshot {
    let loaded = load_texts("", Some(routes), &mut Endpoints::default());
    loaded.expect("a good configuration").snapshot
}

/// A state machine's life: a GET on a kept upstream connection.
pub fn transaction() -> Run {
    let facts = Facts {
        idempotent: true,
        outstanding: 0,
        collect: false,
        keep_alive: true,
        upgrade: false,
        expects_continue: false,
        takes_interim: true,
    };
    let limits = Limits {
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(30),
        min_progress_bytes: 1024,
        min_body_rate: 0,
        body_timeout: Duration::from_secs(60),
        write_timeout: Duration::from_secs(60),
        response_header_timeout: Duration::from_secs(60),
        upstream_idle_timeout: Duration::from_secs(60),
        upgrade_idle_timeout: Duration::from_secs(60),
        header_deadline: Duration::ZERO,
        request_deadline: Duration::ZERO,
        deadline_covers_upgrades: false,
        half_close_aborts: false,
        retries: 1,
    };
    let response = ResponseFacts {
        keep_alive: true,
        switches: false,
        event_stream: false,
        client_until_close: false,
    };
    let mut now = Time(1_000_000_000);
    let mut live = move || {
        now = now + STEP;
        let (mut transaction, _) = Transaction::begin(now, facts, limits);
        for input in [
            Input::Connected { reused: true },
            Input::HeadSent,
            Input::FinalHead(response),
            Input::DownloadWaits(Side::Client),
            Input::Sent {
                bytes: 1200,
                pending: 0,
            },
            Input::DownloadDone { surplus: false },
        ] {
            black_box(transaction.deadline());
            black_box(transaction.step(now, black_box(input)));
        }
        transaction.is_finished() && transaction.cause().is_none()
    };
    assert!(live());
    Box::new(move || {
        black_box(live());
    })
}

/// A look-up among 1,000 routes by prefix.
pub fn route() -> Run {
    let mut routes = "routes:\n".to_owned();
    for n in 0..1000 {
        let _ = writeln!(
            routes,
            "  - {{prefix: /svc{n}/v1, target: \"http://127.0.0.1\"}}"
        );
    }
    let table = loaded(&routes).table;
    let look = move || match table.lookup(
        black_box(b"t.example"),
        black_box(b"/svc777/v1/users/42"),
        b"GET",
        |_| None,
    ) {
        Lookup::Route(route) => route.id,
        other => panic!("{other:?}"),
    };
    look();
    Box::new(move || {
        black_box(look());
    })
}

fn client(n: u32) -> Client {
    Client {
        address: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)),
        is_proxy: false,
    }
}

/// The rules of the default configuration, with lists, and with room for a load.
fn rules() -> Rules {
    Rules {
        adaptive_rate_limit: true,
        rate_limit_rps: 1_000_000,
        rate_limit_burst: 1_000_000,
        allow: ["192.0.2.0/24".parse().expect("a block")]
            .into_iter()
            .collect(),
        deny: ["198.51.100.0/24".parse().expect("a block")]
            .into_iter()
            .collect(),
        ..Rules::default()
    }
}

fn known(rules: &Rules) -> Arc<Firewall> {
    let firewall = Firewall::new(rules);
    for n in 0..ADDRESSES {
        let _ = firewall.request(rules, client(n), None, Time(0));
    }
    assert_eq!(firewall.stats().tracked, ADDRESSES as usize);
    firewall
}

/// A request of a connection's own peer.
pub fn firewall_peer() -> Run {
    let rules = rules();
    let firewall = known(&rules);
    let mut now = Time(1_000_000_000);
    let mut permit = firewall.connect(&rules, client(7), now).permit;
    let mut ask = move || {
        now = now + STEP;
        firewall.request(&rules, client(7), permit.as_mut(), now)
    };
    assert_eq!(ask(), Decision::Admit);
    Box::new(move || {
        black_box(ask());
    })
}

/// A request of an address that a proxy names.
pub fn firewall_proxied() -> Run {
    let rules = rules();
    let firewall = known(&rules);
    let (mut now, mut n) = (Time(1_000_000_000), 0u32);
    let mut ask = move || {
        now = now + STEP;
        n = n.wrapping_add(7919);
        firewall.request(&rules, client(n % ADDRESSES), None, now)
    };
    assert_eq!(ask(), Decision::Admit);
    Box::new(move || {
        black_box(ask());
    })
}

fn key(index: u32) -> Key {
    Key {
        token: Token {
            index,
            generation: 0,
        },
        lane: 0,
    }
}

/// A deadline that moves on, as with every byte received.
pub fn wheel_moves() -> Run {
    let mut now = Time(1_000_000_000);
    let mut wheel = Wheel::new(now);
    let timer = wheel.insert(key(1));
    let mut moved = move || {
        now = now + STEP;
        wheel.arm(black_box(timer), Some(now + Duration::from_secs(30)));
        wheel.deadline(timer)
    };
    assert!(moved().is_some());
    Box::new(move || {
        black_box(moved());
    })
}

/// A deadline that is armed 30 s ahead, and met: it goes down three levels of the wheel.
pub fn wheel_fires() -> Run {
    let mut now = Time(1_000_000_000);
    let mut wheel = Wheel::new(now);
    let timer = wheel.insert(key(1));
    let mut due = Vec::with_capacity(4);
    let mut fire = move || {
        let deadline = now + Duration::from_secs(30);
        wheel.arm(timer, Some(deadline));
        due.clear();
        // A reactor's way: it wakes when the wheel wants it to.
        while due.is_empty() {
            now = wheel.next_wakeup().expect("it is filed").max(now);
            wheel.advance(now, &mut due);
        }
        now.since(deadline) <= Wheel::GRAIN && now >= deadline
    };
    assert!(fire());
    Box::new(move || {
        black_box(fire());
    })
}

fn log_line(format: LogFormat, has: &'static str) -> Run {
    let snapshot = loaded("routes:\n  - {prefix: /api, target: \"http://127.0.0.1:9/v1\"}\n");
    let route = Arc::clone(&snapshot.table.routes()[0]);
    let mut slots = field_slots::<32>();
    let head = request::parse(BROWSER, &HeadLimits { max_fields: 32 }, &mut slots);
    let head = head.expect("a good head");
    let mut asked = Description::default();
    asked.take(&head, head.path);
    let micros = |n| Some(Duration::from_micros(n));
    let times = Times {
        header: micros(0),
        queue: micros(0),
        connect: micros(0),
        first_byte: micros(412),
        total: micros(498),
    };
    let mut out = Vec::with_capacity(1024);
    let mut at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    let mut write = move |is_checked: bool| {
        at += STEP;
        out.clear();
        let line = Line {
            at,
            client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            asked: black_box(&asked),
            route: Some(&route.name),
            target: route.targets().first().map(AsRef::as_ref),
            status: 200,
            bytes_in: 0,
            bytes_out: 1190,
            times,
            reason: None,
            shortfall: None,
        };
        line.write(format, &mut out);
        !is_checked || out.windows(has.len()).any(|w| w == has.as_bytes())
    };
    assert!(write(true));
    Box::new(move || {
        black_box(write(false));
    })
}

/// A line of the access log as text.
pub fn log_text() -> Run {
    log_line(LogFormat::Text, " status=200 in=0 out=1190 header_us=0 ")
}

/// A line of the access log as JSON.
pub fn log_json() -> Run {
    log_line(LogFormat::Json, ",\"status\":200,\"bytes_in\":0,")
}
