//! Draws the plan of a seed.

use std::net::SocketAddr;
use std::time::Duration;

use toron::http::answer::Answer;
use toron_reactor::sim::{Faults, Random};

use crate::plan::{
    Body, Client, End, Ending, Framing, Leaving, Plan, Reply, Request, Route, Story, Upstream,
    UPSTREAMS,
};

/// Those of a random mixture that neither take time nor connections.
fn harmless_faults(random: &mut Random) -> Faults {
    let all = Faults::random(random);
    Faults {
        short: all.short,
        short_segment: all.short_segment,
        delay: all.delay,
        delay_for: Duration::from_micros(40),
        cancel_race: all.cancel_race,
        pipe_error: all.pipe_error,
        pipe_tiny: all.pipe_tiny,
        fragments: all.fragments,
        again: all.again,
        idle_turn: all.idle_turn,
        send_buffer: all.send_buffer,
        receive_buffer: all.receive_buffer,
        ..Faults::none()
    }
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize]
}

fn one_in(random: &mut Random, n: u64) -> bool {
    random.below(n) == 0
}

fn millis(random: &mut Random, most: u64) -> Duration {
    Duration::from_nanos(random.below(most * 1_000_000))
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Plan {
        let mut r = Random::new(seed ^ 0x746f_726f_6e00);
        let kind = r.below(8);
        let (calm, harmless) = (kind < 2, kind == 2 || kind == 3);
        let faults = if calm {
            Faults::none()
        } else if harmless {
            harmless_faults(&mut r)
        } else {
            Faults::random(&mut r)
        };
        let least = |(low, high): (usize, usize)| (low + high) / 2;
        let room = least(faults.send_buffer).min(least(faults.receive_buffer));
        let scale = (room * 64).clamp(300, 300_000);
        let mut plan = Plan {
            faults,
            calm,
            harmless,
            buffers: if one_in(&mut r, 8) {
                r.between(3, 12) as usize
            } else {
                256
            },
            requests: Vec::new(),
            clients: Vec::new(),
            upstreams: Vec::new(),
            silent: one_in(&mut r, 2),
            story: Story::Whole,
        };
        for address in &UPSTREAMS[..3] {
            plan.upstreams.push(upstream(&mut r, address));
        }
        let gentle = one_in(&mut r, 3);
        for n in 0..r.between(1, 6) {
            plan.client(&mut r, n, scale, gentle);
        }
        plan.story = match r.below(6) {
            0 => Story::Freeze(millis(&mut r, 1_500)),
            1 => Story::Drain(millis(&mut r, 1_500), millis(&mut r, 3_000)),
            _ => Story::Whole,
        };
        plan
    }

    fn client(&mut self, r: &mut Random, n: u64, scale: usize, gentle: bool) {
        let mut requests = Vec::new();
        let count = r.between(1, 5);
        for nth in 0..count {
            let id = self.requests.len();
            let request = request(r, id, scale, gentle, nth + 1 == count);
            let ends = request.tunnel.is_some() || request.malformed.is_some();
            self.requests.push(request);
            requests.push(id);
            if ends {
                break;
            }
        }
        let slow = !gentle && one_in(r, 6);
        self.clients.push(Client {
            address: SocketAddr::from(([127, 0, 2, n as u8 + 1], 0)),
            start: millis(r, 800),
            requests,
            pipelined: one_in(r, 3),
            thinks: one_in(r, 2),
            ending: if gentle { Ending::Clean } else { ending(r) },
            send: pace(r, slow),
            receive: pace(r, slow),
            window: (slow && one_in(r, 2)).then(|| r.between(1, 3_000) as usize),
        });
    }
}

fn pace(r: &mut Random, slow: bool) -> (usize, Duration) {
    match r.below(5) {
        0 | 1 if slow => (
            r.between(200, 4_000) as usize,
            millis(r, 40) + Duration::from_micros(1),
        ),
        // Too slow for a minimum of progress.
        2 if slow => (
            r.between(1, 8) as usize,
            millis(r, 200) + Duration::from_millis(100),
        ),
        _ => (usize::MAX, Duration::ZERO),
    }
}

fn ending(r: &mut Random) -> Ending {
    let leaving = pick(r, &[Leaving::Fin, Leaving::Reset, Leaving::Close]);
    match r.below(14) {
        0 | 1 => Ending::Leave(r.below(1001) as usize, leaving),
        2 => Ending::Stop(r.below(1000) as usize),
        3 => Ending::LeaveReading(r.below(3_000) as usize, leaving),
        4 | 6 | 7 => Ending::HalfClose,
        5 => Ending::Wait,
        _ => Ending::Clean,
    }
}

fn upstream(r: &mut Random, address: &str) -> Upstream {
    Upstream {
        address: address.parse().unwrap(),
        idle: one_in(r, 3).then(|| millis(r, 300)),
        receive: {
            let slow = one_in(r, 8);
            pace(r, slow)
        },
    }
}

fn size(r: &mut Random, scale: usize) -> usize {
    let most = match r.below(8) {
        0 => 0,
        1 => 1,
        2..=4 => 200,
        5 => 5_000,
        6 => return (65_536 - 3 + r.below(7) as usize).min(scale),
        _ => scale,
    };
    r.below(most.min(scale) as u64 + 1) as usize
}

fn request(r: &mut Random, id: usize, scale: usize, gentle: bool, last: bool) -> Request {
    let routes = [
        Route::Two,
        Route::Two,
        Route::Two,
        Route::One,
        Route::One,
        Route::App,
        Route::Pair,
        Route::Limited,
        Route::Up,
        Route::Dead,
        Route::Fixed,
        Route::Pool,
        Route::Pool,
        Route::Pool,
    ];
    let route = pick(r, if gentle { &routes[..7] } else { &routes });
    let http10 = one_in(r, 12);
    let method = pick(r, &["GET", "GET", "GET", "HEAD", "POST", "PUT"]);
    let body = match (method, r.below(5)) {
        ("GET" | "HEAD", 1..) => Body::None,
        (_, 0 | 1) if !http10 => chunked(r, scale),
        _ => Body::Length(size(r, scale)),
    };
    let mut request = Request {
        id,
        method,
        http10,
        close: last && one_in(r, 3) || one_in(r, 25),
        route,
        body,
        expect: one_in(r, 8) && !http10,
        malformed: None,
        reply: reply(r, scale, gentle, method),
        tunnel: None,
    };
    if request.route == Route::Up && !http10 {
        request.method = "GET";
        request.body = Body::None;
        request.expect = false;
        request.tunnel = Some((size(r, scale), size(r, scale)));
        request.reply = Reply {
            status: 101,
            framing: Framing::Bare,
            size: 0,
            end: End::Keep,
            ..request.reply
        };
    }
    if !gentle && one_in(r, 25) {
        request.malformed = Some(malformed(r, id));
        request.method = "POST";
        request.http10 = false;
        request.tunnel = None;
    }
    let length = request.body_length();
    if request.tunnel.is_none() && length > 1 && one_in(r, 8) && !gentle {
        request.reply.early = Some(r.below(length as u64) as usize);
    }
    request
}

fn chunked(r: &mut Random, scale: usize) -> Body {
    let mut left = size(r, scale);
    let mut sizes = Vec::new();
    while left > 0 {
        let n = if sizes.len() > 20 {
            left
        } else {
            r.between(1, left as u64) as usize
        };
        sizes.push(n);
        left -= n;
    }
    Body::Chunked(sizes, one_in(r, 3), one_in(r, 3))
}

fn reply(r: &mut Random, scale: usize, gentle: bool, method: &str) -> Reply {
    let mut reply = Reply {
        interims: Vec::new(),
        status: pick(r, &[200, 200, 200, 201, 404, 500]),
        framing: pick(
            r,
            &[
                Framing::Length,
                Framing::Length,
                Framing::Chunked(false),
                Framing::Chunked(true),
                Framing::UntilClose,
            ],
        ),
        size: size(r, scale),
        early: None,
        end: End::Keep,
        drip: None,
    };
    if one_in(r, 8) {
        (reply.status, reply.framing, reply.size) = (pick(r, &[204, 304]), Framing::Bare, 0);
    }
    if one_in(r, 6) {
        reply.interims = (0..r.between(1, 3)).map(|_| pick(r, &[100, 103])).collect();
    }
    if !gentle && one_in(r, 3) {
        reply.end = misbehaviour(r);
        reply.drip = one_in(r, 8).then(|| (r.between(1, 300) as usize, millis(r, 300)));
    } else if one_in(r, 6) {
        reply.end = End::SayClose;
    }
    tidy(&mut reply, method);
    reply
}

fn misbehaviour(r: &mut Random) -> End {
    let rst = one_in(r, 2);
    match r.below(10) {
        0 => End::CloseSilently,
        1 => End::Surplus,
        2 => End::LateSurplus,
        3 => End::CutHead(r.below(1000) as usize, rst),
        4 | 5 => End::CutBody(r.below(1000) as usize, rst),
        6 => End::Stall,
        7 => End::Garbage,
        // Not a byte of it.
        8 => End::CutHead(0, rst),
        _ => End::Never,
    }
}

/// Leaves out what cannot be told apart from something else.
fn tidy(reply: &mut Reply, method: &str) {
    let bodiless = method == "HEAD" || reply.framing == Framing::Bare;
    let until_close = reply.framing == Framing::UntilClose && !bodiless;
    let cuts_nothing = bodiless || (reply.size == 0 && reply.framing == Framing::Length);
    reply.end = match reply.end {
        // A FIN is how such a body ends.
        End::CutBody(n, _) if until_close && reply.size > 0 => End::CutBody(n, true),
        End::CutBody(..) | End::Stall if cuts_nothing => End::SayClose,
        End::CutBody(..) | End::Keep | End::Surplus | End::LateSurplus if until_close => {
            End::CloseSilently
        }
        end => end,
    };
    if matches!(reply.end, End::Surplus | End::LateSurplus) {
        reply.size = reply.size.min(1_000);
    }
}

fn malformed(r: &mut Random, id: usize) -> (Vec<u8>, Answer) {
    let body = "X-Id: 1\r\n\r\n";
    let text = match r.below(9) {
        0 => format!("GET /r{id}\r\n{body}"),
        1 => format!("GET /r{id} HTTP/1.1\r\n{body}"),
        2 => format!("GET /r{id} HTTP/1.1\nHost: sim.test\n{body}"),
        3 => format!("GET /r{id} HTTP/1.1\r\nHost: sim.test\r\n folded\r\n{body}"),
        4 => format!(
            "POST /r{id} HTTP/1.1\r\nHost: sim.test\r\nContent-Length: 5\r\n\
             Transfer-Encoding: chunked\r\n{body}"
        ),
        5 => format!(
            "POST /r{id} HTTP/1.1\r\nHost: sim.test\r\nTransfer-Encoding: chunked\r\nX-Id: {id}\r\n\
             \r\n3\r\nabc\r\n+1\r\nd\r\n0\r\n\r\n"
        ),
        6 => {
            let text = format!(
                "POST /r{id} HTTP/1.1\r\nHost: sim.test\r\nTransfer-Encoding: gzip\r\n{body}"
            );
            return (text.into_bytes(), Answer::UnsupportedCoding);
        }
        7 => {
            let text = format!("GET /r{id} HTTP/2.0\r\nHost: sim.test\r\n{body}");
            return (text.into_bytes(), Answer::VersionNotSupported);
        }
        _ => {
            let text = format!(
                "GET /r{id} HTTP/1.1\r\nHost: sim.test\r\nX-Long: {}",
                "y".repeat(9_000)
            );
            return (text.into_bytes(), Answer::HeadTooLarge);
        }
    };
    (text.into_bytes(), Answer::BadRequest)
}
