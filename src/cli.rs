//! The command line.

pub mod help;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use help::{commands, Page};
use lexopt::{Arg, Parser, ValueExt};
use toron::args::{ExplainArgs, ServeArgs};
use toron::bench::{options, Asked, BenchArgs};
use toron::control::config::addresses::parse_listen;
use toron::control::config::hint::allowed;
use toron::origin::UpstreamArgs;
use toron::tune::args::TuneArgs;
use toron_reactor::EngineKind;

/// What to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Run.
    Serve(ServeArgs),
    /// Check the files.
    Check {
        /// Which ones.
        files: ServeArgs,
        /// Whether a warning is a failure.
        strict: bool,
    },
    /// Explain what becomes of a request.
    Explain(Box<ExplainArgs>),
    /// Run the test origin.
    Upstream(UpstreamArgs),
    /// Audit the kernel's settings.
    Tune(TuneArgs),
    /// Measure a server.
    Bench(Box<BenchArgs>),
    /// Print a page of help.
    Help(Page),
    /// Print [`version`].
    Version,
}

/// Version, commit (if it was known when this was built), and which engine this kernel allows.
pub fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let commit = option_env!("TORON_COMMIT").map_or(String::new(), |c| format!(" ({c})"));
    let engine = match EngineKind::Auto.choose() {
        Ok((_, why)) => why,
        Err(error) => format!("none: {error}"),
    };
    format!("toron {version}{commit}\nengine {engine}")
}

/// Reads the arguments, the program's name left out. The error is for people.
pub fn parse<I>(arguments: I) -> Result<Command, String>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    read(Parser::from_args(arguments)).map_err(|error| error.to_string())
}

fn read(mut parser: Parser) -> Result<Command, lexopt::Error> {
    let mut command: Option<String> = None;
    let (mut check, mut strict) = (false, false);
    let mut files = ServeArgs::default();
    let mut listen: Vec<SocketAddr> = Vec::new();
    let mut origin = UpstreamArgs::default();
    let defaults = origin.clone();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => {
                let checks = check.then_some(Page::Check);
                let page = command.as_deref().and_then(Page::of).or(checks);
                return Ok(Command::Help(page.unwrap_or(Page::All)));
            }
            Arg::Short('V') | Arg::Long("version") => return Ok(Command::Version),
            Arg::Short('t') => check = true,
            Arg::Long("strict") => strict = true,
            Arg::Short('c') | Arg::Long("config") => {
                once(&mut files.config, "--config", &mut parser)?;
            }
            Arg::Short('r') | Arg::Long("routes") => {
                once(&mut files.routes, "--routes", &mut parser)?;
            }
            Arg::Long("listen") => listen.push(address(&parser.value()?.string()?)?),
            Arg::Long("engine") => origin.engine = engine(&parser.value()?.string()?)?,
            Arg::Long("reactors") => {
                origin.reactors = parser.value()?.parse::<std::num::NonZeroUsize>()?.get();
            }
            Arg::Value(word) if command.is_none() => {
                let word = word.string()?;
                if word == "help" {
                    return help(&mut parser);
                }
                page_of(&word)?;
                if word == "tune" {
                    let alone = !check && !strict && listen.is_empty() && origin == defaults;
                    return tune(&mut parser, files, alone);
                }
                if word == "bench" {
                    return match options::read(&mut parser)? {
                        Asked::Run(args) => Ok(Command::Bench(args)),
                        Asked::Help => Ok(Command::Help(Page::Bench)),
                    };
                }
                if word == "explain" {
                    let alone = !check && !strict && listen.is_empty() && origin == defaults;
                    return explain(&mut parser, files, alone);
                }
                command = Some(word);
            }
            Arg::Short(_) | Arg::Long(_) | Arg::Value(_) => return Err(argument.unexpected()),
        }
    }
    let serves = files != ServeArgs::default() || check;
    let checks = check || command.as_deref() == Some("check");
    if strict && !checks {
        return Err("--strict belongs to check".into());
    }
    match command.as_deref() {
        Some("upstream") if serves => Err("-c, -r and -t do not belong to upstream".into()),
        Some("upstream") => {
            if !listen.is_empty() {
                origin.listen = listen;
            }
            Ok(Command::Upstream(origin))
        }
        _ if !listen.is_empty() => {
            Err("--listen belongs to upstream (server.listen is in config.yaml)".into())
        }
        _ if origin != defaults => {
            Err("--engine and --reactors belong to upstream (server.engine \
                                        and server.worker_pool_size are in config.yaml)"
                .into())
        }
        _ if checks => Ok(Command::Check { files, strict }),
        _ => Ok(Command::Serve(files)),
    }
}

/// `help`, and `help COMMAND`.
fn help(parser: &mut Parser) -> Result<Command, lexopt::Error> {
    let word = match parser.next()? {
        None => return Ok(Command::Help(Page::All)),
        Some(Arg::Value(word)) => word.string()?,
        Some(argument) => return Err(argument.unexpected()),
    };
    page_of(&word).map(Command::Help)
}

/// The page of a command; an error where there is no such command.
fn page_of(word: &str) -> Result<Page, lexopt::Error> {
    Page::of(word).ok_or_else(|| {
        let hint = allowed(word, &commands());
        format!("unknown command \"{word}\" {hint}").into()
    })
}

/// As in `server.listen`; the port of an address alone is that of the default.
fn address(text: &str) -> Result<SocketAddr, lexopt::Error> {
    parse_listen(text, 9000).ok_or_else(|| {
        format!(
            "--listen: \"{text}\" is not an address (allowed: 127.0.0.1:9000, [::1]:9000, :9000, or an \
             address or a port alone)"
        )
        .into()
    })
}

/// The options of tune are its own; only the files may stand in front of it.
fn tune(parser: &mut Parser, files: ServeArgs, alone: bool) -> Result<Command, lexopt::Error> {
    if !alone {
        return Err("only -c and -r may stand before tune".into());
    }
    let args = TuneArgs::read(parser, files)?;
    Ok(args.map_or(Command::Help(Page::Tune), Command::Tune))
}

/// The request and the options of explain; only the files may stand in front of it.
fn explain(parser: &mut Parser, files: ServeArgs, alone: bool) -> Result<Command, lexopt::Error> {
    if !alone {
        return Err("only -c and -r may stand before explain".into());
    }
    let mut words: Vec<String> = Vec::new();
    let mut args = ExplainArgs {
        files,
        method: "GET".to_owned(),
        url: String::new(),
        headers: Vec::new(),
        from: IpAddr::V4(Ipv4Addr::LOCALHOST),
        running: false,
        admin: None,
        key: None,
        json: false,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help(Page::Explain)),
            Arg::Short('c') | Arg::Long("config") => {
                once(&mut args.files.config, "--config", parser)?;
            }
            Arg::Short('r') | Arg::Long("routes") => {
                once(&mut args.files.routes, "--routes", parser)?;
            }
            Arg::Short('H') | Arg::Long("header") => args.headers.push(parser.value()?.string()?),
            Arg::Long("from") => args.from = parser.value()?.parse()?,
            Arg::Long("json") => args.json = true,
            Arg::Long("running") => args.running = true,
            Arg::Long("admin") => args.admin = Some(parser.value()?.string()?),
            Arg::Long("key") => args.key = Some(parser.value()?.string()?),
            Arg::Value(word) if words.len() < 2 => words.push(word.string()?),
            Arg::Short(_) | Arg::Long(_) | Arg::Value(_) => return Err(argument.unexpected()),
        }
    }
    if !args.running && (args.admin.is_some() || args.key.is_some()) {
        return Err("--admin and --key belong to --running".into());
    }
    args.url = words
        .pop()
        .ok_or("explain needs a URL (http://host/path)")?;
    args.method = words.pop().unwrap_or(args.method);
    Ok(Command::Explain(Box::new(args)))
}

fn engine(name: &str) -> Result<EngineKind, lexopt::Error> {
    const ENGINES: [&str; 3] = ["auto", "io_uring", "epoll"];
    match name {
        "auto" => Ok(EngineKind::Auto),
        "io_uring" => Ok(EngineKind::IoUring),
        "epoll" => Ok(EngineKind::Epoll),
        _ => Err(format!("unknown engine \"{name}\" {}", allowed(name, &ENGINES)).into()),
    }
}

fn once(
    slot: &mut Option<std::path::PathBuf>,
    name: &str,
    parser: &mut Parser,
) -> Result<(), lexopt::Error> {
    let value = parser.value()?;
    if slot.replace(value.into()).is_some() {
        return Err(format!("{name} is given twice").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace())
    }

    fn files(config: Option<&str>, routes: Option<&str>) -> ServeArgs {
        ServeArgs {
            config: config.map(Into::into),
            routes: routes.map(Into::into),
        }
    }

    #[test]
    fn help_is_that_of_the_command() {
        let all = ["serve", "check", "explain", "upstream", "bench", "tune"];
        assert_eq!(help::commands(), all);
        for name in all {
            let page = Page::of(name).unwrap();
            for line in [
                format!("help {name}"),
                format!("{name} --help"),
                format!("{name} -h"),
            ] {
                assert_eq!(read(&line), Ok(Command::Help(page)), "{line}");
            }
            let text = page.text();
            assert!(text.starts_with(&format!("toron {name}")), "{text}");
            assert!(text.contains(&format!("  toron {name} ")), "{text}");
            assert_eq!(page.command(), format!("toron {name} --help"));
            let listed = format!("\n  {name:<12}");
            assert!(Page::All.text().contains(&listed), "{name}");
        }
        for (line, page) in [
            ("help", Page::All),
            ("--help", Page::All),
            ("-t -h", Page::Check),
            ("-c a check -h", Page::Check),
            ("-c a explain http://b/ --help", Page::Explain),
            ("upstream --reactors 2 --help", Page::Upstream),
        ] {
            assert_eq!(read(line), Ok(Command::Help(page)), "{line}");
        }
        let error = read("help bensh").unwrap_err();
        assert!(error.contains("did you mean \"bench\"?"), "{error}");
        for (line, help) in [
            ("-c a tune --nonsense", Page::Tune),
            ("bench --nonsense", Page::Bench),
            ("check --nonsense", Page::Check),
            ("--nonsense", Page::All),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(Page::of_arguments(&words), help, "{line}");
        }
    }

    /// Each page names every option that its command takes, and no other.
    #[test]
    fn pages_name_the_options_of_their_command() {
        for (page, options) in [
            (Page::All, &["--help", "--version"][..]),
            (Page::Serve, &["--config", "--routes", "--help"]),
            (Page::Check, &["--config", "--routes", "--strict", "--help"]),
            (
                Page::Explain,
                &[
                    "--header",
                    "--from",
                    "--json",
                    "--config",
                    "--routes",
                    "--running",
                    "--admin",
                    "--key",
                    "--help",
                ],
            ),
            (
                Page::Upstream,
                &["--listen", "--engine", "--reactors", "--help"],
            ),
        ] {
            let section = page.text().split("\nOptions:\n").nth(1).unwrap();
            let section = section.split("\n\n").next().unwrap();
            let lines = section.lines().filter(|line| line.starts_with("  -"));
            let named: Vec<&str> = lines
                .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")))
                .collect();
            assert_eq!(named, options, "{page:?}");
            let is_short = |line: &str| line.chars().count() <= 100;
            assert!(page.text().lines().all(is_short), "{page:?}");
        }
    }

    #[test]
    fn commands() {
        assert_eq!(read(""), Ok(Command::Serve(files(None, None))));
        assert_eq!(
            read("serve -c a -r b"),
            Ok(Command::Serve(files(Some("a"), Some("b"))))
        );
        assert_eq!(
            read("--config=a"),
            Ok(Command::Serve(files(Some("a"), None)))
        );
        for line in [
            "check -c a",
            "-t -c a",
            "-tca",
            "-c a check",
            "serve -t -c a",
        ] {
            assert_eq!(
                read(line),
                Ok(Command::Check {
                    files: files(Some("a"), None),
                    strict: false
                }),
                "{line}"
            );
        }
        for line in ["check --strict", "-t --strict", "--strict check"] {
            assert_eq!(
                read(line),
                Ok(Command::Check {
                    files: files(None, None),
                    strict: true
                }),
                "{line}"
            );
        }
        let at = |text: &str| UpstreamArgs {
            listen: vec![text.parse().unwrap()],
            ..UpstreamArgs::default()
        };
        assert_eq!(
            read("upstream"),
            Ok(Command::Upstream(at("127.0.0.1:9000")))
        );
        assert_eq!(
            read("upstream --listen [::1]:0"),
            Ok(Command::Upstream(at("[::1]:0")))
        );
        for (text, address) in [
            ("9100", "0.0.0.0:9100"),
            (":9105", "0.0.0.0:9105"),
            ("localhost:9104", "127.0.0.1:9104"),
            ("127.0.0.2", "127.0.0.2:9000"),
        ] {
            let line = format!("upstream --listen {text}");
            assert_eq!(read(&line), Ok(Command::Upstream(at(address))), "{line}");
        }
        let Ok(Command::Upstream(args)) = read("upstream --engine epoll --reactors 3") else {
            panic!("not understood")
        };
        assert_eq!((args.engine, args.reactors), (EngineKind::Epoll, 3));
        let Ok(Command::Tune(args)) = read("-c a tune --check") else {
            panic!("not understood")
        };
        assert_eq!((args.files, args.check), (files(Some("a"), None), true));
        let Ok(Command::Bench(args)) = read("bench http://a:1/x --closed --connections 3") else {
            panic!("not understood")
        };
        assert_eq!((args.connections, args.rate), (3, None));
        let Ok(Command::Explain(args)) = read("-c a explain http://b/ -H X:1 --header=Y:2 --json")
        else {
            panic!("not understood")
        };
        assert_eq!((&*args.method, &*args.url), ("GET", "http://b/"));
        assert_eq!(args.headers, ["X:1", "Y:2"]);
        assert_eq!(
            (args.files.clone(), args.json),
            (files(Some("a"), None), true)
        );
        let Ok(Command::Explain(args)) = read("explain PUT /x --running --key k --from ::1") else {
            panic!("not understood")
        };
        assert_eq!(
            (&*args.method, &*args.url, args.running),
            ("PUT", "/x", true)
        );
        assert_eq!(read("-V"), Ok(Command::Version));
    }

    #[test]
    fn mistakes() {
        for (line, said) in [
            ("chek", "unknown command \"chek\" (allowed: serve, check, explain, upstream, bench, tune; did you mean \"check\"?)"),
            ("serve check", "unexpected argument"),
            ("--confg a", "invalid option '--confg'"),
            ("-c", "missing argument"),
            ("-c a -c b", "--config is given twice"),
            ("--listen 127.0.0.1:1", "--listen belongs to upstream"),
            ("upstream --listen here", "--listen: \"here\" is not an address (allowed: "),
            ("--strict", "--strict belongs to check"),
            ("upstream --strict", "--strict belongs to check"),
            ("upstream --engine kqueue", "allowed: auto, io_uring, epoll"),
            ("upstream --reactors 0", "cannot parse argument"),
            ("--engine epoll", "--engine and --reactors belong to upstream"),
            ("upstream -c a", "do not belong to upstream"),
            ("-t tune", "only -c and -r may stand before tune"),
            ("bench", "needs a URL"),
            ("explain", "needs a URL"),
            ("explain GET http://a/ x", "unexpected argument"),
            ("explain http://a/ --key k", "--admin and --key belong to --running"),
            ("explain http://a/ --from here", "cannot parse argument"),
            ("--strict explain http://a/", "only -c and -r may stand before explain"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
