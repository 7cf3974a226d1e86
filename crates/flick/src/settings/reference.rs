//! `docs/guide/options.md` is generated from the definitions of the options. `UPDATE=1 cargo test -p flick reference`
//! rewrites it; the tests also check that every key exists and that every documented default is the actual one.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, Command};
use flick_runtime::{Limits, Timeouts};

use super::file;
use super::flags::RunFlags;

/// Options without a key in `flick.toml`.
const WITHOUT_KEY: &[&str] = &["check", "config", "watch", "verbose", "help"];

/// Values of which every option accepts one.
const EXAMPLES: &[&str] = &[
    "7",
    "1ms",
    "50%",
    "64MiB",
    "2KiB",
    "1/7",
    "json",
    "epoll",
    "auto",
    "interpreter",
    "strict",
    "queue",
    "round-robin",
    "a",
    "[::1]:53",
    "p99:1ms",
    "dry-run",
    "1s",
];

pub(super) fn options() -> Vec<Arg> {
    let command = RunFlags::augment_args(Command::new("run"));
    command.get_arguments().cloned().collect()
}

/// Table and key of an option in `flick.toml`, and whether the key is the opposite of the option.
pub(super) fn key_of(option: &Arg) -> Option<(&'static str, String, bool)> {
    let id = option.get_id().as_str();
    let heading = option.get_help_heading().unwrap_or("");
    match id {
        _ if WITHOUT_KEY.contains(&id) => None,
        "programs" => Some(("service", "program".to_owned(), false)),
        "engine" => Some(("service", id.to_owned(), false)),
        "admin" => Some(("admin", "listen".to_owned(), false)),
        "admin_token_file" => Some(("admin", "token_file".to_owned(), false)),
        "admin_read_token_file" => Some(("admin", "read_token_file".to_owned(), false)),
        "no_cpu_affinity" => Some(("", "cpu_affinity".to_owned(), true)),
        "listen" => Some(("listen", "CHANNEL".to_owned(), false)),
        "connect" => Some(("connect", "CHANNEL".to_owned(), false)),
        _ if heading == "Timeouts" => {
            Some(("timeouts", id.strip_suffix("_timeout").unwrap_or(id).to_owned(), false))
        }
        _ if matches!(heading, "Limits" | "Overload and scheduling") => {
            Some(("limits", id.to_owned(), false))
        }
        _ if heading == "Tuning" => Some(("tune", id.strip_prefix("tune_").unwrap_or(id).to_owned(), false)),
        _ if heading == "Backend health" => Some(("health", id.to_owned(), false)),
        _ => Some(("", id.to_owned(), false)),
    }
}

/// The help of an option, split into text and default.
pub(super) fn help_of(option: &Arg) -> (String, Option<String>) {
    let help = option.get_help().expect("every option has a help text").to_string().replace('\n', " ");
    match help.split_once(" [default: ") {
        Some((text, default)) => {
            (text.to_owned(), Some(default.trim_end_matches(['.', ']']).trim_end_matches(']').to_owned()))
        }
        None => (help, None),
    }
}

/// Returns an option as it is written, with its value.
fn usage_of(option: &Arg) -> String {
    let values = option.get_value_names().unwrap_or_default().iter().map(ToString::to_string);
    let value = if takes_value(option) { values.collect::<Vec<_>>().join(" ") } else { String::new() };
    match option.get_long() {
        Some(long) => format!("--{long} {value}").trim_end().to_owned(),
        None => value,
    }
}

pub(super) fn takes_value(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Set | ArgAction::Append)
}

/// The page.
fn page() -> String {
    let mut out = String::from(
        "# Options of `flick run`\n\n\
         <!-- Generated from crates/flick/src/settings; `UPDATE=1 cargo test -p flick reference` rewrites it. -->\n\n\
         Every option is also a key of `flick.toml`, but for those marked `-`. The command line has precedence over the\n\
         file, the file over the default. The tables `[limits]`, `[timeouts]` and `[health]` apply to all services; those\n\
         inside `[service]` or `[[service]]` apply to one. Limits are per service, over all its workers.\n\n\
         Durations need a unit (`50us`, `250ms`, `10s`, `5m`, `1h`), sizes too (`64KiB`, `512MiB`, `1GiB`); in the file both\n\
         are strings. Programs and scenarios [write durations differently](../language/reference.md#durations).\n\n\
         A request is *balanced without a key* if the program selects its backend with `round_robin`, `least_loaded` or\n\
         `two_choices`. [operations.md](operations.md) explains when to set which option, and lists the corresponding\n\
         directives of [nginx, HAProxy and Envoy](operations.md#for-users-of-nginx-haproxy-and-envoy).\n",
    );
    let options = options();
    let mut headings: Vec<&str> = Vec::new();
    for heading in options.iter().map(|option| option.get_help_heading().unwrap_or("Program")) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        // Writing to a `String` does not fail.
        let _ = writeln!(out, "\n## {heading}");
        for option in &options {
            if option.get_help_heading().unwrap_or("Program") != heading || option.get_id() == "help" {
                continue;
            }
            let (help, default) = help_of(option);
            let key = match key_of(option) {
                None => "-".to_owned(),
                Some(("", key, is_opposite)) => {
                    format!("`{key}{}`", if is_opposite { " = false" } else { "" })
                }
                Some((table, key, _)) => format!("`[{table}] {key}`"),
            };
            let _ = writeln!(out, "\n### `{}`\n", usage_of(option));
            write_wrapped(&mut out, &help);
            out.push_str(if takes_value(option) && !option.get_possible_values().is_empty() {
                "\n"
            } else {
                ""
            });
            for value in option.get_possible_values().iter().filter(|_| takes_value(option)) {
                let help = value.get_help().map(ToString::to_string).unwrap_or_default();
                let _ = writeln!(out, "- `{}`: {help}", value.get_name());
            }
            let _ = writeln!(
                out,
                "\nKey: {key}. Default: {}.",
                default.as_deref().map_or("off".to_owned(), shown)
            );
        }
    }
    out
}

/// A default: a value as code, a sentence as it is.
fn shown(default: &str) -> String {
    if default.contains(' ') || default == "none" { default.to_owned() } else { format!("`{default}`") }
}

/// Writes a paragraph in lines of at most 120 characters.
fn write_wrapped(out: &mut String, text: &str) {
    let mut length = 0;
    for word in text.split(' ') {
        if length > 0 && length + 1 + word.len() > 118 {
            out.push('\n');
            length = 0;
        }
        if length > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += word.len();
    }
    let end = if text.ends_with('.') { "\n" } else { ".\n" };
    out.push_str(end);
}

#[test]
fn reference_is_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/options.md");
    let expected = page();
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        return std::fs::write(&path, expected).expect("the docs are writable");
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "docs/guide/options.md is not current; UPDATE=1 rewrites it");
}

#[test]
fn every_option_has_a_help_sentence() {
    for option in options() {
        let (text, _) = help_of(&option);
        let id = option.get_id();
        assert!(text.starts_with(char::is_uppercase), "{id}: {text}");
        assert!(text.len() >= 15, "{id}: {text}");
    }
}

/// Parses settings that are written to a file.
pub(super) fn parse_file(name: &str, text: &str) -> Result<file::File, String> {
    // Tests run at the same time, and may use the same name.
    static FILES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let (process, number) = (std::process::id(), FILES.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("flick-reference-{process}-{number}-{name}.toml"));
    std::fs::write(&path, text).expect("the temporary directory is writable");
    let read = file::read(&path).map(|loaded| loaded.file).map_err(|failure| failure.text());
    std::fs::remove_file(&path).expect("the test created it");
    read
}

#[test]
fn every_key_exists() {
    for option in options() {
        let Some((table, key, _)) = key_of(&option) else { continue };
        let values = EXAMPLES.iter().flat_map(|value| [format!("\"{value}\""), (*value).to_owned()]);
        let values =
            values.chain(["true".to_owned(), "\"127.0.0.1:1\"".to_owned(), "\"65534:65534\"".to_owned()]);
        let header = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        let is_accepted =
            values.into_iter().any(|value| parse_file(&key, &format!("{header}{key} = {value}\n")).is_ok());
        assert!(is_accepted, "no example is a value of `[{table}] {key}`");
    }
}

/// The options of a command line.
fn parse_options(arguments: &[&str]) -> Result<RunFlags, clap::Error> {
    let command = RunFlags::augment_args(Command::new("run"));
    let matches = command.try_get_matches_from(std::iter::once("run").chain(arguments.iter().copied()))?;
    clap::FromArgMatches::from_arg_matches(&matches)
}

#[test]
fn documented_defaults_are_the_actual_ones() {
    let mut checked = 0;
    for option in options() {
        let (Some(long), (_, Some(default))) = (option.get_long(), help_of(&option)) else { continue };
        let default = default.split(',').next().unwrap_or_default();
        // The default of `--max-backends` applies only to lists that may change.
        if default.starts_with("none") || long == "max-backends" {
            continue;
        }
        let Ok(flags) = parse_options(&[&format!("--{long}"), default]) else { continue };
        let (mut limits, mut timeouts) = (Limits::default(), Timeouts::default());
        flags.limits.apply(&mut limits);
        flags.health.apply(&mut limits);
        flags.timeouts.apply(&mut timeouts);
        assert_eq!(format!("{limits:?}"), format!("{:?}", Limits::default()), "--{long}");
        assert_eq!(format!("{timeouts:?}"), format!("{:?}", Timeouts::default()), "--{long}");
        checked += 1;
    }
    assert!(checked > 35, "only {checked} defaults were checked");
}

/// A value that an option accepts.
pub(super) fn example_of(long: &str) -> Option<&'static str> {
    let option = options().into_iter().find(|option| option.get_long() == Some(long));
    option.filter(takes_value)?;
    EXAMPLES.iter().find(|value| parse_options(&[&format!("--{long}"), value]).is_ok()).copied()
}

/// The parsed options, to compare them.
pub(super) fn parsed(arguments: &[&str]) -> String {
    format!("{:?}", parse_options(arguments).expect("the options are right"))
}
