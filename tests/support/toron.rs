//! The real binary, started with generated files on a port of its own choice.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use super::nginx::{self, Nginx};
use super::process::{OnDrop, Proc, Process};
use super::setup::Settings;
use super::{TempDir, PATIENCE};

enum Running {
    Toron(Process, TempDir),
    StandIn(Nginx),
}

/// A running toron, ended and reaped when dropped.
pub struct Toron {
    pub addr: SocketAddr,
    running: Running,
}

/// Whether nginx stands in for toron (`TORON_TEST_PROXY=nginx`), to prove the rig.
pub fn stand_in() -> bool {
    match std::env::var("TORON_TEST_PROXY") {
        Ok(name) if name == "nginx" => true,
        Ok(name) => panic!("TORON_TEST_PROXY={name}: only nginx is known"),
        Err(_) => false,
    }
}

impl Toron {
    /// Starts it and waits until it says where it listens.
    pub fn start(settings: &Settings) -> Self {
        if stand_in() {
            return Self::start_stand_in(settings);
        }
        let (config, routes) = (settings.config_yaml(), settings.routes_yaml());
        Self::start_files(&config, &routes, settings.descriptor_limit)
    }

    /// Starts it with the text of both files. They must make it listen on port 0.
    pub fn start_files(config: &str, routes: &str, descriptor_limit: Option<u32>) -> Self {
        let (dir, config, routes) = write_files(config, routes);
        let binary = env!("CARGO_BIN_EXE_toron");
        let mut command = match descriptor_limit {
            None => Command::new(binary),
            Some(limit) => {
                let mut shell = Command::new("sh");
                shell
                    .arg("-c")
                    .arg(format!("ulimit -n {limit}; exec \"$0\" \"$@\""))
                    .arg(binary);
                shell
            }
        };
        command
            .arg("serve")
            .arg("-c")
            .arg(&config)
            .arg("-r")
            .arg(&routes);
        command.current_dir(dir.path()).env("RUST_LOG", "info");
        let process = Process::spawn(command, "toron", OnDrop::Kill);
        let addr = process.wait_line(PATIENCE, listening_on);
        Toron {
            addr,
            running: Running::Toron(process, dir),
        }
    }

    /// Starts nginx in its place.
    pub fn start_stand_in(settings: &Settings) -> Self {
        let nginx = nginx::stand_in(settings);
        Toron {
            addr: nginx.addr,
            running: Running::StandIn(nginx),
        }
    }

    /// Puts `settings` in the place of those it runs with, and waits until they hold.
    pub fn reload(&self, settings: &Settings) {
        let outcome = self.try_reload(settings);
        assert!(outcome.ends_with("reload: done"), "{outcome}");
    }

    /// Puts the files of `settings` in the place of those it runs with, good or not; what it says of
    /// them in the end.
    pub fn try_reload(&self, settings: &Settings) -> String {
        let Running::Toron(process, dir) = &self.running else {
            panic!("only toron is reloaded here");
        };
        let done = |line: &str| line.contains("reload: ");
        let before = process.log_lines().iter().filter(|l| done(l)).count();
        write_into(dir, &settings.config_yaml(), &settings.routes_yaml());
        process.signal(rustix::process::Signal::HUP);
        let mut seen = 0;
        process.wait_line(PATIENCE, |line| {
            seen += usize::from(done(line));
            (seen > before).then(|| line.to_owned())
        })
    }

    pub fn process(&self) -> &Process {
        match &self.running {
            Running::Toron(process, _) => process,
            Running::StandIn(nginx) => &nginx.process,
        }
    }

    pub fn process_mut(&mut self) -> &mut Process {
        match &mut self.running {
            Running::Toron(process, _) => process,
            Running::StandIn(nginx) => &mut nginx.process,
        }
    }

    /// What /proc says about it. Of nginx, its first worker: the process that moves the bytes.
    pub fn proc(&self) -> Proc {
        let pid = self.process().pid();
        match &self.running {
            Running::Toron(..) => Proc(pid),
            Running::StandIn(_) => Proc(Proc(pid).children().first().copied().unwrap_or(pid)),
        }
    }

    /// Processor ticks of all its processes.
    pub fn cpu_ticks(&self) -> u64 {
        match &self.running {
            Running::Toron(process, _) => Proc(process.pid()).cpu_ticks(),
            Running::StandIn(nginx) => nginx.cpu_ticks(),
        }
    }

    /// Whose figures these are.
    pub fn name(&self) -> &'static str {
        match &self.running {
            Running::Toron(..) => "toron",
            Running::StandIn(_) => "nginx in the place of toron,",
        }
    }
}

fn write_files(config: &str, routes: &str) -> (TempDir, PathBuf, PathBuf) {
    let dir = TempDir::new("toron");
    let (config, routes) = write_into(&dir, config, routes);
    (dir, config, routes)
}

fn write_into(dir: &TempDir, config_text: &str, routes_text: &str) -> (PathBuf, PathBuf) {
    let (config, routes) = (dir.join("config.yaml"), dir.join("routes.yaml"));
    std::fs::write(&config, config_text).expect("write config.yaml");
    std::fs::write(&routes, routes_text).expect("write routes.yaml");
    (config, routes)
}

/// What `toron check` says about `settings`: its output, as an error when it finds a fault.
pub fn check(settings: &Settings) -> Result<String, String> {
    check_files(&[], &settings.config_yaml(), &settings.routes_yaml())
}

/// What `toron check`, with further `options`, says about the text of both files: its output, as an
/// error when it refuses them.
pub fn check_files(options: &[&str], config: &str, routes: &str) -> Result<String, String> {
    let (_dir, config, routes) = write_files(config, routes);
    let mut command = Command::new(env!("CARGO_BIN_EXE_toron"));
    let out = command
        .arg("check")
        .args(options)
        .arg("-c")
        .arg(config)
        .arg("-r")
        .arg(routes)
        .output();
    let out = out.expect("run toron check");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match out.status.success() {
        true => Ok(text(&out.stdout)),
        false => Err(text(&out.stderr) + &text(&out.stdout)),
    }
}

/// The address in a line like `… listening on 127.0.0.1:8080`.
pub fn listening_on(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on ")?;
    rest.split_whitespace()
        .next()?
        .trim_end_matches([',', '.'])
        .parse()
        .ok()
}
