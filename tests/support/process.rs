//! Child processes: started, listened to, measured through /proc, ended by PID and reaped.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};

#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

/// How a process is asked to end when its handle is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnDrop {
    /// SIGKILL: nothing to hand over.
    Kill,
    /// SIGTERM first, so that it can end its own children; SIGKILL after two seconds.
    Terminate,
}

/// A running child whose stderr is collected line by line.
pub struct Process {
    child: Child,
    what: String,
    log: Arc<Log>,
    reader: Option<JoinHandle<()>>,
    on_drop: OnDrop,
}

impl Process {
    /// Starts `command` with stdin and stdout closed to /dev/null and stderr collected.
    pub fn spawn(mut command: Command, what: &str, on_drop: OnDrop) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {what}: {e}"));
        let stderr = child.stderr.take().expect("stderr is piped");
        let log = Arc::new(Log::default());
        let reader = {
            let log = Arc::clone(&log);
            std::thread::spawn(move || collect(stderr, &log))
        };
        Process {
            child,
            what: what.to_owned(),
            log,
            reader: Some(reader),
            on_drop,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a line of stderr gives a value.
    pub fn wait_line<T>(&self, limit: Duration, mut pick: impl FnMut(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + limit;
        let mut guard = self.log.lines.lock().expect("log lock");
        let mut seen = 0;
        loop {
            while seen < guard.0.len() {
                if let Some(found) = pick(&guard.0[seen]) {
                    return found;
                }
                seen += 1;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !guard.1 && !left.is_zero(),
                "{}: the awaited line did not come; its stderr:\n{}",
                self.what,
                guard.0.join("\n")
            );
            guard = self
                .log
                .changed
                .wait_timeout(guard, left)
                .expect("log lock")
                .0;
        }
    }

    /// All lines of stderr so far.
    pub fn log_lines(&self) -> Vec<String> {
        self.log.lines.lock().expect("log lock").0.clone()
    }

    /// Sends a signal to this process alone.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a child's PID");
        // An error here means that it has already ended, which the caller finds out by waiting.
        let _ = kill_process(pid, signal);
    }

    /// The exit status, if it ends within `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait for a child") {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("wait for a child").is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.on_drop == OnDrop::Terminate {
            self.signal(Signal::TERM);
            self.wait(Duration::from_secs(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn collect(stderr: impl Read, log: &Log) {
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        log.lines.lock().expect("log lock").0.push(line);
        log.changed.notify_all();
    }
    log.lines.lock().expect("log lock").1 = true;
    log.changed.notify_all();
}

/// What /proc says about a process.
pub struct Proc(pub u32);

impl Proc {
    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.0))
            .expect("read /proc/PID/fd")
            .count()
    }

    /// What the descriptors are, counted by kind (`socket`, `pipe`, `anon_inode:[eventpoll]`, …).
    pub fn descriptor_kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        let dir = std::fs::read_dir(format!("/proc/{}/fd", self.0)).expect("read /proc/PID/fd");
        for link in dir
            .flatten()
            .filter_map(|e| std::fs::read_link(e.path()).ok())
        {
            let name = link.to_string_lossy().into_owned();
            let kind = match name.split_once(":[") {
                Some((kind, _)) if !name.starts_with("anon_inode") => kind.to_owned(),
                _ => name,
            };
            *kinds.entry(kind).or_insert(0) += 1;
        }
        kinds
    }

    fn status_kib(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).expect("status");
        let line = status
            .lines()
            .find(|l| l.starts_with(key))
            .expect("line of /proc/PID/status");
        line.split_whitespace()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .expect("KiB figure")
    }

    /// Peak resident memory in KiB.
    pub fn peak_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    /// Lets [`Proc::peak_kib`] begin anew at what is resident now (proc_pid_clear_refs(5)).
    pub fn reset_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.0), "5").expect("reset the peak");
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// Processor time used so far, user and system, in clock ticks of 10 ms (USER_HZ is 100).
    pub fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).expect("stat");
        // The name in parentheses may hold spaces; utime and stime are fields 14 and 15.
        let after = stat.rsplit_once(')').expect("name in /proc/PID/stat").1;
        after
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|n| n.parse::<u64>().expect("ticks"))
            .sum()
    }

    /// PIDs of its children.
    pub fn children(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.0);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect()
    }
}
