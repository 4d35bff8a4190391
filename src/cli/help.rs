//! What `--help` prints: one page for each command, and one that lists them.

use std::ffi::OsString;

use toron::{bench, tune};

/// A page of help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// All commands.
    All,
    /// `toron serve`.
    Serve,
    /// `toron check`.
    Check,
    /// `toron explain`.
    Explain,
    /// `toron upstream`.
    Upstream,
    /// `toron bench`.
    Bench,
    /// `toron tune`.
    Tune,
}

/// The commands, in the order of the list, with their pages.
const COMMANDS: [(&str, Page); 6] = [
    ("serve", Page::Serve),
    ("check", Page::Check),
    ("explain", Page::Explain),
    ("upstream", Page::Upstream),
    ("bench", Page::Bench),
    ("tune", Page::Tune),
];

/// Their names.
pub fn commands() -> [&'static str; 6] {
    COMMANDS.map(|(name, _)| name)
}

impl Page {
    /// That of a command; `None` where there is no such command.
    pub fn of(command: &str) -> Option<Page> {
        let mut all = COMMANDS.iter();
        all.find_map(|(name, page)| (*name == command).then_some(*page))
    }

    /// That of the first command among these arguments, the list where there is none.
    pub fn of_arguments(arguments: &[OsString]) -> Page {
        let mut words = arguments.iter().filter_map(|word| word.to_str());
        words.find_map(Page::of).unwrap_or(Page::All)
    }

    /// How to ask for it.
    pub fn command(self) -> String {
        match COMMANDS.iter().find(|(_, page)| *page == self) {
            Some((name, _)) => format!("toron {name} --help"),
            None => "toron --help".to_owned(),
        }
    }

    /// What it says.
    pub fn text(self) -> &'static str {
        match self {
            Page::All => ALL,
            Page::Serve => SERVE,
            Page::Check => CHECK,
            Page::Explain => EXPLAIN,
            Page::Upstream => UPSTREAM,
            Page::Bench => bench::HELP,
            Page::Tune => tune::args::HELP,
        }
    }
}

const ALL: &str = "\
toron, a reverse proxy

Usage:
  toron [COMMAND] [OPTIONS]

Commands:
  serve       run; also what toron does without a command
  check       check the configuration and show what holds (also: toron -t)
  explain     which route takes a request, and why the others do not
  upstream    the test origin, a server to try things against
  bench       measure a server
  tune        what the kernel allows, and how to change it

Options:
  -h, --help          this text; toron COMMAND --help is that of a command
  -V, --version       version, and the engine that this kernel allows

toron check and toron serve take the same files: toron serve --help
";

const SERVE: &str = "\
toron serve: run

Usage:
  toron serve [-c FILE] [-r FILE]     (without the word it is the same)

Options:
  -c, --config FILE   the configuration (default: config.yaml or toron.yaml in the working
                      directory, else in /etc/toron)
  -r, --routes FILE   the routes (default: routes.yaml beside the configuration)
  -h, --help          this text

A bad configuration ends it with status 1 before anything listens. SIGHUP reads both files again,
SIGTERM stops when the requests in flight are done, SIGUSR1 opens the log files anew.

Example:
  toron serve -c /etc/toron/config.yaml
";

const CHECK: &str = "\
toron check: check the configuration and show what holds for each route

Usage:
  toron check [-c FILE] [-r FILE] [--strict]
  toron -t [-c FILE] [-r FILE] [--strict]

Options:
  -c, --config FILE   the configuration (default: config.yaml or toron.yaml in the working
                      directory, else in /etc/toron)
  -r, --routes FILE   the routes (default: routes.yaml beside the configuration)
  --strict            exit status 1 also for warnings
  -h, --help          this text

It opens no socket and changes nothing. Every fault is a line FILE:LINE:COLUMN: what is wrong, on
standard error, and the exit status is 1.

Example:
  toron check --strict -c config.yaml -r routes.yaml && systemctl reload toron
";

const EXPLAIN: &str = "\
toron explain: which route takes a request and why the others do not, its limits and where they were
set, and what the upstream sees

Usage:
  toron explain [METHOD] URL [-H 'NAME: VALUE']… [OPTIONS]

Options:
  -H, --header 'NAME: VALUE'
                      a header of the request (repeatable)
  --from ADDRESS      where the request comes from (default 127.0.0.1)
  --json              for machines
  -c, --config FILE   the configuration (default: config.yaml or toron.yaml in the working
                      directory, else in /etc/toron)
  -r, --routes FILE   the routes (default: routes.yaml beside the configuration)
  --running           ask the toron that runs, in place of the files
  --admin URL         with --running: its admin API (default: where the files say)
  --key KEY           with --running: its key (default: TORON_ADMIN_KEY, then the files)
  -h, --help          this text

METHOD is GET unless it is given. No request is sent.

Example:
  toron explain POST http://example.com/upload -H 'Content-Length: 50000000'
";

const UPSTREAM: &str = "\
toron upstream: the test origin, a server to try things against

Usage:
  toron upstream [--listen ADDRESS]… [OPTIONS]

Options:
  --listen ADDRESS    where it listens (repeatable; default 127.0.0.1:9000). 9100 and :9100 are that
                      port on every address, 127.0.0.1 alone is its port 9000
  --engine NAME       auto, io_uring or epoll (default auto)
  --reactors N        threads (default: one for each core)
  -h, --help          this text

Its page / lists what it answers: echoes, bodies of any length, delays, drips, statuses, events.

Example:
  toron upstream --listen 127.0.0.1:9000 &
  curl http://127.0.0.1:9000/delay/500
";
