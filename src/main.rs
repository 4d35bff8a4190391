//! The command line, and nothing else.

#![forbid(unsafe_code)]

mod cli;

use std::io::Write;
use std::process::ExitCode;

use cli::help::Page;
use cli::Command;
use toron::args::ServeArgs;
use toron::control::check::check;
use toron::control::config::Inputs;
use toron::origin::UpstreamArgs;

/// Exit status for a command line that makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match cli::parse(&arguments) {
        Ok(Command::Serve(args)) => serve(&args),
        Ok(Command::Check { files, strict }) => run_check(files, strict),
        Ok(Command::Explain(args)) => toron::control::explain::run(&args),
        Ok(Command::Upstream(args)) => upstream(&args),
        Ok(Command::Bench(args)) => toron::bench::run(&args),
        Ok(Command::Tune(args)) => toron::tune::run(&args),
        Ok(Command::Help(page)) => print(page.text()),
        Ok(Command::Version) => print(&format!("{}\n", cli::version())),
        Err(error) => {
            let page = Page::of_arguments(&arguments);
            eprintln!("toron: {error}\nTry {}.", page.command());
            ExitCode::from(USAGE)
        }
    }
}

/// Writes to standard output. A reader that has gone (`toron check | head`) is no failure.
fn print(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn run_check(files: ServeArgs, strict: bool) -> ExitCode {
    let inputs = Inputs::from_environment(files.config, files.routes);
    let outcome = check(&inputs, strict);
    print(&outcome.output);
    eprint!("{}", outcome.errors);
    if outcome.good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn serve(args: &ServeArgs) -> ExitCode {
    toron::control::serve::run(args)
}

fn upstream(args: &UpstreamArgs) -> ExitCode {
    toron::origin::run(args)
}
