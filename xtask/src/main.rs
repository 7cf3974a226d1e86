//! `cargo xtask`: every task of the project, in Rust, so that a machine needs nothing but the toolchain.
//! Promises: without an argument it prints one line per task and changes nothing; a task that fails says what to do
//! and exits with status 1.
//! Not here: what a task checks (`tasks/`, `tidy.rs`), how a command is run (`run.rs`).
#![forbid(unsafe_code)]

mod tasks;

mod tidy;

mod rfc;

mod run;

use std::process::ExitCode;

/// One task: its name, what it does in one line, and the function.
struct Task {
    name: &'static str,
    about: &'static str,
    run: Run,
}

/// The function of a task.
enum Run {
    Alone(fn() -> run::Outcome),
    WithArguments(fn(&[String]) -> run::Outcome),
}

const TASKS: &[Task] = &[
    Task {
        name: "test",
        about: "run every test; as root installs the Debian packages they use",
        run: Run::Alone(tasks::test::run),
    },
    Task { name: "fmt", about: "format the code", run: Run::Alone(tasks::fmt) },
    Task { name: "lint", about: "clippy over everything, warnings denied", run: Run::Alone(tasks::lint) },
    Task {
        name: "deny",
        about: "licences, sources and advisories of dependencies",
        run: Run::Alone(tasks::deny::run),
    },
    Task { name: "doc", about: "build the API documentation, warnings denied", run: Run::Alone(tasks::doc) },
    Task {
        name: "tidy",
        about: "what no other tool checks: sizes, unsafe, pages, links, words, types, imports: tidy [--terms PATH | --all PATH]",
        run: Run::WithArguments(tidy::run_with),
    },
    Task {
        name: "fuzz",
        about: "look for what breaks the compiler or its parsers: fuzz text|checker|ir|programs|messages|rewritten [--seconds N] [--replay FILE]",
        run: Run::WithArguments(tasks::fuzz::run),
    },
    Task {
        name: "faults",
        about: "every example in the simulator under injected faults: faults [--seeds N]",
        run: Run::WithArguments(tasks::faults::run),
    },
    Task {
        name: "dist",
        about: "build the release binary, with its debug information in a file beside it",
        run: Run::Alone(tasks::dist::run),
    },
    Task {
        name: "bench",
        about: "every sweep of the benchmarks for a moment, for correctness only",
        run: Run::Alone(tasks::bench::run),
    },
    Task {
        name: "rfc",
        about: "write docs/http-compliance.md: the rules of RFC 9110 and 9112, and the lines that obey them",
        run: Run::Alone(rfc::run),
    },
    Task {
        name: "ci",
        about: "what CI runs, in its order, with the time of each step",
        run: Run::Alone(tasks::ci::run),
    },
];

fn main() -> ExitCode {
    if let Some(ended) = tasks::fuzz::as_compiler() {
        return ended;
    }
    let mut args = std::env::args().skip(1);
    let Some(name) = args.next() else {
        for task in TASKS {
            println!("cargo xtask {:<6} {}", task.name, task.about);
        }
        return ExitCode::SUCCESS;
    };
    let args: Vec<String> = args.collect();
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        let names: Vec<_> = TASKS.iter().map(|task| task.name).collect();
        eprintln!("error: no task `{name}`; there are {}", names.join(", "));
        return ExitCode::from(2);
    };
    let outcome = match (&task.run, args.first()) {
        (Run::WithArguments(run), _) => run(&args),
        (Run::Alone(run), None) => run(),
        (Run::Alone(_), Some(extra)) => {
            eprintln!("error: `cargo xtask {name}` takes no arguments, got `{extra}`");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
