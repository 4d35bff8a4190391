//! The two logs: where they go, and opening them again after they were moved away.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{bounded, Receiver, Sender};

use crate::policy::settings::{LogFormat, LogSink, Logging};
use crate::server::access_log::LogSource;

/// Has a log file opened again (SIGUSR1 after a rotation).
#[derive(Clone, Debug)]
pub struct Reopener(Arc<AtomicBool>);

impl Reopener {
    /// At the next write.
    pub fn reopen(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct AppendFile {
    path: Arc<Path>,
    file: File,
    reopen: Arc<AtomicBool>,
}

impl AppendFile {
    fn open(path: &Path) -> io::Result<(Self, Reopener)> {
        let reopen = Arc::new(AtomicBool::new(false));
        let file = append(path)?;
        let this = AppendFile {
            path: path.into(),
            file,
            reopen: Arc::clone(&reopen),
        };
        Ok((this, Reopener(reopen)))
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot write to {}: {error}", path.display()),
            )
        })
}

impl Write for AppendFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.reopen.swap(false, Ordering::Relaxed) {
            // Without the new file, the old one is better than none.
            if let Ok(file) = append(&self.path) {
                self.file = file;
            }
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Lines on their way to the error log. A reader that does not read (a full pipe, a stalled disk) costs
/// lines, never a reactor that waits.
const ERROR_LINES: usize = 4096;
/// How long the end waits for the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

enum ErrorMail {
    Line(Vec<u8>),
    /// Everything before it has been written.
    Flush(Sender<()>),
}

/// Where `env_logger` writes to.
struct Detached {
    sender: Sender<ErrorMail>,
    dropped: Arc<AtomicU64>,
}

impl Write for Detached {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self
            .sender
            .try_send(ErrorMail::Line(line.to_vec()))
            .is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The running error log.
#[derive(Clone, Debug)]
pub struct ErrorLog {
    sender: Sender<ErrorMail>,
    /// Opens it again, if it is a file.
    pub reopener: Option<Reopener>,
}

impl ErrorLog {
    /// Waits until what was logged so far is written, a second at most.
    pub fn flush(&self) {
        let (done, written) = bounded(1);
        if self
            .sender
            .send_timeout(ErrorMail::Flush(done), LAST_LINES)
            .is_ok()
        {
            let _ = written.recv_timeout(LAST_LINES);
        }
    }
}

/// Starts the error log (`log` macros). `RUST_LOG` overrides the configured level.
pub fn start_error_log(logging: &Logging) -> io::Result<ErrorLog> {
    let (out, reopener): (Box<dyn Write + Send>, _) = match &logging.error_log {
        Some(path) => {
            let (file, reopener) = AppendFile::open(path)?;
            (Box::new(file), Some(reopener))
        }
        None => (Box::new(io::stderr()), None),
    };
    let (sender, mail) = bounded(ERROR_LINES);
    let dropped = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&dropped);
    thread::Builder::new()
        .name("error-log".to_owned())
        .spawn(move || write_lines(out, &mail, &its))?;
    let detached = Detached {
        sender: sender.clone(),
        dropped,
    };
    let mut builder = env_logger::Builder::new();
    if logging.format == LogFormat::Json {
        builder.format(write_record);
    }
    builder
        .filter_level(logging.level)
        .parse_default_env()
        .target(env_logger::Target::Pipe(Box::new(detached)));
    // Only the first start in a process can set the logger.
    let _ = builder.try_init();
    Ok(ErrorLog { sender, reopener })
}

/// One JSON object a line.
fn write_record(out: &mut impl Write, record: &log::Record<'_>) -> io::Result<()> {
    let line = serde_json::json!({
        "time": humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        "level": record.level().as_str(),
        "target": record.target(),
        "message": record.args().to_string(),
    });
    writeln!(out, "{line}")
}

fn write_lines(mut out: impl Write, mail: &Receiver<ErrorMail>, dropped: &AtomicU64) {
    while let Ok(mail) = mail.recv() {
        match mail {
            ErrorMail::Line(line) => {
                // Where the log cannot be written there is nobody to tell.
                let _ = out.write_all(&line);
            }
            ErrorMail::Flush(done) => {
                let _ = out.flush();
                let _ = done.send(());
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(out, "{lost} lines of the log were dropped");
        }
    }
}

/// The running writer of the access log.
#[derive(Debug)]
pub struct AccessWriter {
    /// Disconnected when the writer has ended.
    ended: Receiver<()>,
    /// Opens the log again, if it is a file.
    pub reopener: Option<Reopener>,
}

impl AccessWriter {
    /// Waits until the last line is written, after all reactors have ended; a second at most, since a
    /// reader may have stalled.
    pub fn wait(&self) {
        let _ = self.ended.recv_timeout(LAST_LINES);
    }
}

/// Starts the thread that writes the access log; it ends when all reactors have.
pub fn start_access_log(sink: &LogSink, source: LogSource) -> io::Result<AccessWriter> {
    let (out, reopener): (Box<dyn Write + Send>, _) = match sink {
        LogSink::Stdout => (Box::new(io::stdout()), None),
        LogSink::File(path) => {
            let (file, reopener) = AppendFile::open(path)?;
            (Box::new(file), Some(reopener))
        }
    };
    let (alive, ended) = bounded(0);
    thread::Builder::new()
        .name("access-log".to_owned())
        .spawn(move || {
            write_batches(BufWriter::with_capacity(64 * 1024, out), &source);
            drop::<Sender<()>>(alive);
        })?;
    Ok(AccessWriter { ended, reopener })
}

fn write_batches(mut out: impl Write, source: &LogSource) {
    let mut told = 0;
    while let Ok(first) = source.batches.recv() {
        let mut next = Some(first);
        while let Some(mut batch) = next {
            if let Err(error) = out.write_all(&batch) {
                log::error!("access log: {error}");
            }
            batch.clear();
            // When nobody needs the memory it goes.
            let _ = source.empty.try_send(batch);
            next = source.batches.try_recv().ok();
        }
        if let Err(error) = out.flush() {
            log::error!("access log: {error}");
        }
        let dropped = source.dropped.load(Ordering::Relaxed);
        if dropped != told {
            log::warn!("access log: {} lines were dropped", dropped - told);
            told = dropped;
        }
    }
}

/// All that SIGUSR1 opens again.
#[derive(Debug, Default)]
pub struct Reopeners(Mutex<Vec<Reopener>>);

impl Reopeners {
    /// Adds one.
    pub fn add(&self, reopener: Option<Reopener>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(reopener);
    }

    /// Opens all of them again.
    pub fn reopen_all(&self) {
        for reopener in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            reopener.reopen();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::server::access_log::channel;
    use std::fs;

    /// Takes nothing until it is allowed to.
    struct Stalled(Receiver<()>, Sender<Vec<u8>>);

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            self.1.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_error_log_costs_lines_and_no_waiting() {
        let (sender, mail) = bounded(2);
        let dropped = Arc::new(AtomicU64::new(0));
        let mut log = Detached {
            sender,
            dropped: Arc::clone(&dropped),
        };
        // Nobody takes lines: two wait, the third is lost, and none of the writes waits.
        for line in ["a\n", "b\n", "c\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        let (allow, allowed) = bounded(8);
        let (written, lines) = bounded(8);
        let thread = thread::spawn(move || write_lines(Stalled(allowed, written), &mail, &dropped));
        for _ in 0..8 {
            allow.send(()).unwrap();
        }
        drop(log);
        thread.join().unwrap();
        let text: Vec<u8> = lines.iter().flatten().collect();
        assert_eq!(text, b"a\n1 lines of the log were dropped\nb\n");
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let (log, source) = channel();
        let writer = start_access_log(&LogSink::File(path.clone()), source).unwrap();
        let moved = folder.path().join("access.log.1");
        let mut lines = b"one\n".to_vec();
        log.hand_over(&mut lines);
        while fs::read(&path).unwrap() != b"one\n" {
            thread::yield_now();
        }
        fs::rename(&path, &moved).unwrap();
        writer.reopener.as_ref().unwrap().reopen();
        lines = b"two\n".to_vec();
        log.hand_over(&mut lines);
        drop(log);
        writer.wait();
        assert_eq!(fs::read(&moved).unwrap(), b"one\n");
        assert_eq!(fs::read(&path).unwrap(), b"two\n");
    }
}
