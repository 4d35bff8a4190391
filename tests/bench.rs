//! `toron bench` as a program, on both engines: what it counts, says and returns.
//!
//! That the percentiles are right is proven where time is exact, in
//! src/bench/generator/simulated_tests.rs; here load on the machine can only make times longer, so
//! times are held to lower bounds and to each other.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};
use serde_json::Value;
use toron::origin::{Upstream, UpstreamArgs};
use toron_reactor::EngineKind;

const ENGINES: [&str; 2] = ["epoll", "io_uring"];
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Upper bound of every wait; no measure of speed.
const PATIENCE: Duration = Duration::from_secs(60);

fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    command.arg("bench").args(arguments.split_whitespace());
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn bench(arguments: &str) -> Output {
    command(arguments).output().unwrap()
}

/// The JSON of a run that must succeed.
fn json(arguments: &str) -> Value {
    let output = bench(&format!("{arguments} --json"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {said}");
    assert_eq!(said, "", "{arguments}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    accounted(&value);
    value
}

/// Every request is answered, timed out or failed, and every sample counted.
fn accounted(value: &Value) {
    let n = |name: &str| value["requests"][name].as_u64().unwrap();
    let over = n("answered") + n("timed_out") + n("failed") + n("unfinished");
    assert_eq!(n("started"), over, "{value}");
    let samples = value["latency_us"]["count"].as_u64().unwrap();
    assert_eq!(samples, n("answered") + n("timed_out"), "{value}");
}

fn origin() -> (Upstream, SocketAddr) {
    let upstream = Upstream::start(&UpstreamArgs {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        engine: EngineKind::Auto,
        reactors: 1,
    });
    let upstream = upstream.unwrap();
    let addr = upstream.addresses()[0];
    (upstream, addr)
}

fn stop(upstream: Upstream) {
    upstream.stop(Duration::from_secs(5)).unwrap();
}

/// A server with a thread for each connection, which `serve` plays; ended when dropped.
struct Scripted {
    addr: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Scripted {
    fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let (serve, ended) = (Arc::new(serve), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let serve = Arc::clone(&serve);
                // Ends with its connection.
                std::thread::spawn(move || serve(stream.unwrap()));
            }
        });
        Scripted {
            addr,
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.addr));
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Calls `answer` for each request without a body that comes, until the client goes.
fn requests(mut stream: TcpStream, mut answer: impl FnMut(&mut TcpStream) -> std::io::Result<()>) {
    stream.set_nodelay(true).unwrap();
    let (mut input, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part) {
            Ok(0) => return,
            Ok(n) => input.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
        while let Some(end) = input.windows(4).position(|w| w == b"\r\n\r\n") {
            input.drain(..end + 4);
            if answer(&mut stream).is_err() {
                return;
            }
        }
    }
}

#[test]
fn a_delay_is_in_every_sample() {
    let (upstream, addr) = origin();
    for engine in ENGINES {
        let run = format!("http://{addr}/delay/20 --rate 200 --duration 1s --engine {engine}");
        let value = json(&run);
        assert_eq!(value["mode"], "open");
        assert_eq!(value["engine"], engine);
        assert_eq!(value["requests"]["started"], 200);
        assert_eq!(value["status"]["200"], 200);
        assert_eq!(value["errors"], serde_json::json!({}));
        for key in ["min", "p50", "p90", "p99", "p999", "max"] {
            let micros = value["latency_us"][key].as_f64().unwrap();
            assert!(micros >= 20_000.0, "{key}: {micros}");
            let first = value["first_byte_us"][key].as_f64().unwrap();
            assert!((20_000.0..=micros).contains(&first), "{key}: {first}");
        }
        let warmed = value["settings"]["warmup_s"].as_f64();
        assert_eq!(warmed, Some(0.1));
    }
    stop(upstream);
}

/// A server that stands still for the first 200 ms of each second. By hand: of starts at equal
/// distances 20% meet the stall and wait 100 ms on average, so a tenth of all wait longer than 100
/// ms and a twentieth longer than 150 ms, wherever the three seconds begin. The closed loop has
/// asked eight connections' worth of requests in each stall, out of thousands.
#[test]
fn an_open_loop_shows_a_stall_and_a_closed_loop_does_not() {
    let begin = Instant::now();
    let server = Scripted::start(move |stream| {
        requests(stream, |stream| {
            let into = begin.elapsed().as_millis() as u64 % 1000;
            if into < 200 {
                std::thread::sleep(Duration::from_millis(200 - into));
            }
            stream.write_all(OK)
        });
    });
    let url = format!("http://{}/ --duration 3s --warmup 100ms", server.addr);
    for engine in ENGINES {
        let open = json(&format!(
            "{url} --rate 200 --connections 60 --engine {engine}"
        ));
        let at = |value: &Value, key: &str| value["latency_us"][key].as_f64().unwrap();
        assert!(at(&open, "p90") >= 95_000.0, "{open}");
        assert!(at(&open, "p95") >= 145_000.0, "{open}");
        assert!(at(&open, "p99") >= 185_000.0, "{open}");
        let closed = json(&format!("{url} --closed --connections 8 --engine {engine}"));
        assert_eq!(closed["mode"], "closed");
        assert!(at(&closed, "p90") < at(&open, "p90") / 2.0, "{closed}");
        let notes = closed["generator"]["notes"].to_string();
        assert!(notes.contains("closed loop"), "{notes}");
    }
    let shown = bench(&format!("{url} --closed --duration 200ms"));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("CLOSED LOOP"));
}

#[test]
fn whatever_the_answers_the_run_was_measured() {
    let (upstream, addr) = origin();
    for engine in ENGINES {
        let value = json(&format!(
            "http://{addr}/status/503 --closed --connections 2 --duration 200ms --engine {engine}"
        ));
        assert_eq!(value["status"]["503"], value["requests"]["answered"]);
        // Half an answer and then nothing: time-outs are samples.
        let value = json(&format!(
            "http://{addr}/stall --rate 50 --duration 500ms --timeout 300ms --engine {engine}"
        ));
        assert_eq!(value["requests"]["timed_out"], 25);
        assert_eq!(value["errors"]["timeout"], 25);
        assert!(value["latency_us"]["min"].as_f64().unwrap() >= 299_000.0);
    }
    stop(upstream);
}

#[test]
fn what_cannot_be_measured_is_said() {
    let closing = Scripted::start(drop);
    // A port that nobody listens on, as far as that can be had.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for (arguments, status, said) in [
        (format!("http://{free}/"), 1, "Connection refused"),
        (
            "http://no-such-name.invalid/".to_owned(),
            1,
            "cannot resolve no-such-name.invalid",
        ),
        ("https://127.0.0.1/".to_owned(), 2, "https is not supported"),
        ("127.0.0.1:80".to_owned(), 2, "not a URL"),
        (
            // Told before anybody is asked: there is nobody.
            format!("http://{free}/ --report /nonexistent/x.html"),
            1,
            "cannot write /nonexistent/x.html: there is no folder /nonexistent",
        ),
        (
            "http://a/ --rate 5 --closed".to_owned(),
            2,
            "--closed has no rate",
        ),
        (
            format!("http://{}/ --rate 100 --duration 300ms", closing.addr),
            1,
            "gave no response",
        ),
        (
            format!(
                "http://{}/ --closed --duration 300ms --engine epoll",
                closing.addr
            ),
            1,
            "gave no response",
        ),
    ] {
        let output = bench(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments}: {stderr}");
        assert!(stderr.contains(said), "{arguments}: {stderr}");
    }
}

#[test]
fn connections_that_are_turned_away_are_told_from_bad_responses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // Ends with the program: nobody connects any more.
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            if n == 0 {
                // One is served, or the run would not count as measured.
                std::thread::spawn(move || requests(stream, |stream| stream.write_all(OK)));
                continue;
            }
            let away = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(away);
        }
    });
    let value = json(&format!(
        "http://{addr}/ --rate 20 --duration 1s --connections 2"
    ));
    assert!(
        value["errors"]["answered_unasked"].as_u64().unwrap() > 0,
        "{value}"
    );
    assert_eq!(value["errors"]["bad_response"], Value::Null, "{value}");
}

#[test]
fn a_server_that_closes_after_each_answer_is_asked_again() {
    let server = Scripted::start(|stream| {
        requests(stream, |stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall")?;
            Err(ErrorKind::Other.into())
        });
    });
    for engine in ENGINES {
        let value = json(&format!(
            "http://{}/ --rate 100 --duration 500ms --connections 4 --engine {engine}",
            server.addr
        ));
        assert_eq!(value["requests"]["answered"], 50, "{value}");
        assert!(value["connections"]["made"].as_u64().unwrap() >= 50);
    }
}

/// Waits for a process, but not for ever.
fn wait(mut child: Child) -> Output {
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("it does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn an_interrupt_shows_what_was_measured() {
    for (engine, signal) in [("epoll", Signal::INT), ("io_uring", Signal::TERM)] {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let server = Scripted::start(move |stream| {
            requests(stream, |stream| {
                counted.fetch_add(1, Ordering::SeqCst);
                stream.write_all(OK)
            });
        });
        let run = format!(
            "http://{}/ --rate 500 --duration 1h --warmup 0s --connections 4 --json --engine {engine}",
            server.addr
        );
        let child = command(&run).spawn().unwrap();
        let end = Instant::now() + PATIENCE;
        while count.load(Ordering::SeqCst) < 100 {
            assert!(Instant::now() < end, "no requests come");
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let output = wait(child);
        assert_eq!(output.status.code(), Some(0));
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        accounted(&value);
        assert_eq!(value["interrupted"], true);
        assert!(
            value["requests"]["answered"].as_u64().unwrap() >= 90,
            "{value}"
        );
        let elapsed = value["duration_s"].as_f64().unwrap();
        assert!(elapsed > 0.0 && elapsed < 3600.0);
    }
}

#[test]
fn bodies_go_up_and_come_down_whole() {
    let (upstream, addr) = origin();
    for engine in ENGINES {
        let base =
            format!("--rate 10 --duration 500ms --warmup 0s --connections 4 --engine {engine}");
        let up = json(&format!("http://{addr}/discard --upload 3MB {base}"));
        assert_eq!(up["status"]["200"], 5);
        assert!(up["bytes"]["sent"].as_u64().unwrap() <= 5 * 3_001_000);
        let echoed = json(&format!(
            "http://{addr}/echo --upload 300KB --chunked=1000 {base}"
        ));
        assert_eq!(echoed["status"]["200"], 5);
        let down = json(&format!("http://{addr}/bytes/3000000 {base}"));
        assert_eq!(down["requests"]["answered"], 5);
        // What came after the measured time is not in the bytes.
        assert!(down["bytes"]["received"].as_u64().unwrap() <= 5 * 3_001_000);
        let small = json(&format!("http://{addr}/echo --body hello {base}"));
        assert_eq!(small["requests"]["answered"], 5);
        let head = json(&format!(
            "http://{addr}/bytes/5 --method HEAD {base} --pipeline 3"
        ));
        assert_eq!(head["requests"]["answered"], 5);
        let close = json(&format!("http://{addr}/bytes/5 --keep-alive 0 {base}"));
        assert_eq!(close["requests"]["answered"], 5);
        assert!(close["connections"]["made"].as_u64().unwrap() >= 5);
    }
    stop(upstream);
}

#[test]
fn a_mix_is_told_apart() {
    let (upstream, addr) = origin();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mix.yaml");
    let text = "requests:\n  - {name: fast, weight: 3, path: /bytes/10}\n  \
                - {name: slow, path: /delay/30}\n";
    std::fs::write(&file, text).unwrap();
    for engine in ENGINES {
        let mix = file.display();
        let value = json(&format!(
            "http://{addr}/ --mix {mix} --rate 400 --duration 1s --engine {engine}"
        ));
        let kinds = value["kinds"].as_array().unwrap();
        assert_eq!(
            (&kinds[0]["name"], &kinds[1]["name"]),
            (&"fast".into(), &"slow".into())
        );
        let [fast, slow] = [0, 1].map(|i| kinds[i]["requests"].as_u64().unwrap());
        // A quarter is slow: 100, with a standard deviation of 9 (the seed is fixed).
        assert!(fast + slow == 400 && (60..140).contains(&slow), "{slow}");
        assert!(kinds[1]["latency_us"]["min"].as_f64().unwrap() >= 30_000.0);
    }
    let bad = bench(&format!(
        "http://{addr}/ --mix {}/none",
        dir.path().display()
    ));
    assert_eq!(bad.status.code(), Some(2));
    stop(upstream);
}

#[test]
fn a_comparison_finds_a_difference() {
    let (upstream, addr) = origin();
    for engine in ENGINES {
        let output = bench(&format!(
            "--compare a=http://{addr}/bytes/10 --compare b=http://{addr}/delay/200 --rounds 4 \
             --duration 1s --rate 40 --pid a={} --json --engine {engine}",
            std::process::id()
        ));
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        let targets = value["targets"].as_array().unwrap();
        targets.iter().for_each(accounted);
        assert_eq!(targets[1]["requests"]["started"], 40);
        let cpu = &targets[0]["target_cpu"];
        assert!(cpu["total_s"].as_f64().unwrap() > 0.0 && targets[1]["target_cpu"].is_null());
        let p50 = &value["compare"]["ratios"]["b"]["p50_latency"];
        assert!(
            p50["ratio"].as_f64().unwrap() > 1.0 && p50["low"].as_f64().is_some(),
            "{value}"
        );
        let method = value["compare"]["method"].as_str().unwrap();
        assert!(method.contains("bootstrap") && method.contains("4 interleaved rounds"));
    }
    let gone = bench(&format!("http://{addr}/ --pid 4194305"));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no process 4194305"));
    stop(upstream);
}

#[test]
fn attackers_do_what_they_are_called_for() {
    let (upstream, addr) = origin();
    for engine in ENGINES {
        for (kind, opened) in [
            ("slowloris=5", "connected"),
            ("rudy=5", "connected"),
            ("slow-read=5", "connected"),
            ("header-flood=2", "closed_by_target"),
            ("churn=2", "connected"),
            ("abort=2", "connected"),
        ] {
            let value = json(&format!(
                "http://{addr}/bytes/1000 --rate 50 --duration 400ms --attack {kind} \
                 --attack-interval 20ms --engine {engine}"
            ));
            let attackers = &value["attack"]["attackers"];
            assert!(
                attackers[opened].as_u64().unwrap() > 0,
                "{kind}: {attackers}"
            );
            assert!(
                attackers["bytes"]["sent"].as_u64().unwrap() > 0,
                "{kind}: {attackers}"
            );
            let flood = kind.starts_with("header-flood");
            assert_eq!(
                attackers["answers"]["4xx"].as_u64().unwrap() > 0,
                flood,
                "{attackers}"
            );
            let churn = kind.starts_with("churn");
            let more = attackers["connected"].as_u64().unwrap() > 10;
            assert!(more || !churn, "{attackers}");
            accounted(&value["attack"]["without"]);
        }
    }
    stop(upstream);
}

#[test]
fn every_file_is_written() {
    let (upstream, addr) = origin();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    let output = bench(&format!(
        "http://{addr}/bytes/10?<b> --rate 100..300/600ms/3 --json {} --csv {} --hgrm {} --hlog {} \
         --report {} --svg {}",
        shown("x.json"),
        shown("x.csv"),
        shown("x.hgrm"),
        shown("x.hlog"),
        shown("x.html"),
        shown("svg")
    ));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        stdout.contains("verdict") && stdout.contains("knee"),
        "{stdout}"
    );
    let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    let value: Value = serde_json::from_str(&read("x.json")).unwrap();
    assert_eq!(value["requests"]["started"], 120);
    assert_eq!(value["stages"].as_array().unwrap().len(), 3);
    assert!(value["machine"]["kernel"].is_string());
    let csv = read("x.csv");
    let answered = |line: &str| line.split(',').nth(2).unwrap().parse::<u64>().unwrap();
    assert_eq!(csv.lines().skip(1).map(answered).sum::<u64>(), 120);
    assert!(read("x.hgrm").contains("Total count    =          120"));
    assert!(read("x.hlog").contains("HISTFAAAA"));
    let html = read("x.html");
    assert!(html.contains("&lt;b&gt;") && !html.contains("?<b>"));
    assert!(!html.contains("http://www.w3.org/1999") && html.matches("<svg").count() == 5);
    for plot in ["percentiles", "latency", "throughput", "errors", "stages"] {
        assert!(read(&format!("svg/{plot}.svg")).starts_with("<svg"));
    }
    let denied = bench(&format!(
        "http://{addr}/ --duration 100ms --csv {}/no/x",
        dir.path().display()
    ));
    assert_eq!(denied.status.code(), Some(1));
    stop(upstream);
}
