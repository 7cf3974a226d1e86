//! Deprecated names of options, keys, values and the environment: the only place in the code that has them.
//! Promises: an old name means exactly what the new one means, and each use gives a warning that names the new one; an
//! option or key given by both names is an error.
//! Not here: old names of metrics, which are gone.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table of `flick.toml` in which keys were renamed. All but `Root` also occur inside `[service]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Root,
    Limits,
    Timeouts,
    Health,
}

/// An option and its key, by their old and new names.
#[derive(Debug)]
struct Renamed {
    table: Table,
    /// Old and new option, without the dashes in front.
    option: [&'static str; 2],
    /// Old and new key.
    key: [&'static str; 2],
    /// Old and new values that were renamed as well.
    values: &'static [[&'static str; 2]],
}

const fn renamed(table: Table, option: [&'static str; 2], key: [&'static str; 2]) -> Renamed {
    Renamed { table, option, key, values: &[] }
}

use Table::{Health, Limits, Root, Timeouts};

/// Every deprecated name. Remove a row one release after it was added.
const RENAMED: &[Renamed] = &[
    Renamed {
        table: Limits,
        option: ["overflow", "on-max-connections"],
        key: ["overflow", "on_max_connections"],
        values: &[["pause", "queue"], ["refuse", "reject"]],
    },
    renamed(Root, ["no-pin", "no-cpu-affinity"], ["pin", "cpu_affinity"]),
    renamed(Root, ["drain-deadline", "shutdown-timeout"], ["drain_deadline", "shutdown_timeout"]),
    renamed(
        Root,
        ["reload-deadline", "old-generation-timeout"],
        ["reload_deadline", "old_generation_timeout"],
    ),
    renamed(Root, ["hang-after", "watchdog-timeout"], ["hang_after", "watchdog_timeout"]),
    renamed(Root, ["confine", "sandbox"], ["confine", "sandbox"]),
    renamed(Limits, ["sessions-max", "max-connections"], ["sessions_max", "max_connections"]),
    renamed(
        Limits,
        ["connections-per-address-max", "max-connections-per-ip"],
        ["connections_per_address_max", "max_connections_per_ip"],
    ),
    renamed(Limits, ["accept-rate", "connection-rate-limit"], ["accept_rate", "connection_rate_limit"]),
    renamed(
        Limits,
        ["session-requests-max", "max-inflight-per-client"],
        ["session_requests_max", "max_inflight_per_client"],
    ),
    renamed(Limits, ["requests-max", "max-inflight-requests"], ["requests_max", "max_inflight_requests"]),
    renamed(Limits, ["activations-max", "max-suspended-rules"], ["activations_max", "max_suspended_rules"]),
    renamed(Limits, ["state", "max-state-memory"], ["state", "max_state_memory"]),
    renamed(Limits, ["memory", "max-memory"], ["memory", "max_memory"]),
    renamed(Limits, ["buffers", "buffer-memory"], ["buffers", "buffer_memory"]),
    renamed(
        Limits,
        ["lent-links-max", "max-dedicated-connections"],
        ["lent_links_max", "max_dedicated_connections"],
    ),
    renamed(
        Limits,
        ["exclusive-links-max", "max-connections-per-backend"],
        ["exclusive_links_max", "max_connections_per_backend"],
    ),
    renamed(Limits, ["backends-max", "max-backends"], ["backends_max", "max_backends"]),
    renamed(Limits, ["policy", "task-scheduling"], ["policy", "task_scheduling"]),
    renamed(Limits, ["shed-delay", "overload-queue-delay"], ["shed_delay", "overload_queue_delay"]),
    renamed(Limits, ["gather-max", "batch-delay-max"], ["gather_max", "batch_delay_max"]),
    renamed(Limits, ["spin", "busy-poll"], ["spin", "busy_poll"]),
    renamed(Timeouts, ["reply-timeout", "response-timeout"], ["reply", "response"]),
    renamed(Timeouts, ["gap-timeout", "stream-idle-timeout"], ["gap", "stream_idle"]),
    renamed(Timeouts, ["whole-timeout", "total-timeout"], ["whole", "total"]),
    renamed(Timeouts, ["request-timeout", "client-request-timeout"], ["request", "client_request"]),
    renamed(Timeouts, ["slow-client-timeout", "client-write-timeout"], ["slow_client", "client_write"]),
    renamed(Timeouts, ["leave-timeout", "backend-drain-timeout"], ["leave", "backend_drain"]),
    renamed(Timeouts, ["backoff-min", "reconnect-backoff-min"], ["backoff_min", "reconnect_backoff_min"]),
    renamed(Timeouts, ["backoff-max", "reconnect-backoff-max"], ["backoff_max", "reconnect_backoff_max"]),
    renamed(
        Health,
        ["eject-failures", "outlier-consecutive-failures"],
        ["eject_failures", "outlier_consecutive_failures"],
    ),
    renamed(Health, ["eject-share", "outlier-failure-percent"], ["eject_share", "outlier_failure_percent"]),
    renamed(
        Health,
        ["eject-requests-min", "outlier-min-requests"],
        ["eject_requests_min", "outlier_min_requests"],
    ),
    renamed(Health, ["eject-time", "outlier-ejection-time"], ["eject_time", "outlier_ejection_time"]),
    renamed(Health, ["eject-max", "outlier-max-ejected"], ["eject_max", "outlier_max_ejected"]),
    renamed(
        Health,
        ["backend-pending-max", "max-pending-per-backend"],
        ["backend_pending_max", "max_pending_per_backend"],
    ),
    renamed(
        Health,
        ["backend-requests-max", "max-requests-per-backend"],
        ["backend_requests_max", "max_requests_per_backend"],
    ),
    renamed(Health, ["retry-min", "retry-min-per-second"], ["retry_min", "retry_min_per_second"]),
    renamed(Health, ["check-every", "health-check-interval"], ["check_every", "health_check_interval"]),
    renamed(Health, ["check-timeout", "health-check-timeout"], ["check_timeout", "health_check_timeout"]),
    renamed(Health, ["check-send", "health-check-send"], ["check_send", "health_check_send"]),
    renamed(Health, ["check-expect", "health-check-expect"], ["check_expect", "health_check_expect"]),
    renamed(Health, ["check-fall", "health-check-fall"], ["check_fall", "health_check_fall"]),
    renamed(Health, ["check-rise", "health-check-rise"], ["check_rise", "health_check_rise"]),
];

/// The environment variable that an old process of an earlier version sets for a hot restart.
pub const HOT_RESTART_VARIABLE: &str = "FLICK_TAKEOVER";

/// A deprecated name that was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deprecated {
    old: String,
    new: String,
    /// Its place in the settings file, if it is a key.
    span: Option<Range<usize>>,
}

impl fmt::Display for Deprecated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is deprecated; use `{}`", self.old, self.new)
    }
}

impl Deprecated {
    /// Logs a warning, with the line of the settings file if it is a key.
    pub fn warn(&self, file: Option<(&str, &str)>) {
        match (&self.span, file) {
            (Some(span), Some((path, text))) => {
                let line = text[..span.start].matches('\n').count() + 1;
                tracing::warn!(path, line, "{self}");
            }
            _ => tracing::warn!("{self}"),
        }
    }
}

/// The new name of a deprecated option, without the dashes.
pub fn new_option(old: &str) -> Option<&'static str> {
    RENAMED.iter().find(|row| row.option[0] == old).map(|row| row.option[1])
}

/// The deprecated name of a key of `[limits]`, if it has one.
pub fn old_limit(new: &str) -> Option<&'static str> {
    RENAMED.iter().find(|row| row.table == Limits && row.key[1] == new).map(|row| row.key[0])
}

/// An option or key that is given by its old and its new name.
#[derive(Debug, PartialEq, Eq)]
pub struct GivenTwice {
    /// Description of the error.
    pub message: String,
    /// Place of the old name in the settings file, if it is a key.
    pub span: Range<usize>,
}

impl GivenTwice {
    fn new(deprecated: &Deprecated) -> Self {
        let Deprecated { old, new, span } = deprecated;
        let message = format!(
            "`{old}` and `{new}` are both given; `{old}` is the deprecated name of `{new}`: remove it"
        );
        Self { message, span: span.clone().unwrap_or_default() }
    }
}

/// Translates the arguments of `flick run` to the new names.
///
/// Errors: an option is given by both names.
pub fn translate_arguments(
    arguments: impl Iterator<Item = OsString>,
) -> Result<(Vec<OsString>, Vec<Deprecated>), GivenTwice> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let mut found: Vec<Deprecated> = Vec::new();
    if arguments.get(1).is_none_or(|command| command != "run") {
        return Ok((arguments, found));
    }
    let options = &mut arguments[2..];
    let end = options.iter().position(|argument| argument == "--").unwrap_or(options.len());
    let options = &mut options[..end];
    for row in RENAMED {
        let [old, new] = row.option.map(|name| format!("--{name}"));
        for at in 0..options.len() {
            let Some(value) = value_of(&options[at], &old) else { continue };
            let deprecated = Deprecated { old: old.clone(), new: new.clone(), span: None };
            if options.iter().any(|other| value_of(other, &new).is_some()) && !found.contains(&deprecated) {
                return Err(GivenTwice::new(&deprecated));
            }
            options[at] = match value {
                Value::Attached(value) => {
                    let mut option = OsString::from(format!("{new}="));
                    option.push(row.new_value(value));
                    option
                }
                Value::Next => {
                    if let Some(next) = options.get_mut(at + 1) {
                        *next = row.new_value(next).to_owned();
                    }
                    OsString::from(&new)
                }
            };
            if !found.contains(&deprecated) {
                found.push(deprecated);
            }
        }
    }
    Ok((arguments, found))
}

/// Position of the value of an option.
enum Value<'a> {
    /// Behind `=`.
    Attached(&'a OsStr),
    /// In the next argument, if the option takes one.
    Next,
}

/// Returns the position of the value of `option`; `None` if `argument` is another option.
fn value_of<'a>(argument: &'a OsStr, option: &str) -> Option<Value<'a>> {
    // Only the value may be anything else than UTF-8, and it starts at a byte of ASCII.
    let text = argument.to_str()?;
    let rest = text.strip_prefix(option)?;
    match rest.strip_prefix('=') {
        Some(value) => Some(Value::Attached(OsStr::new(value))),
        None => rest.is_empty().then_some(Value::Next),
    }
}

impl Renamed {
    /// The new name of a value that was renamed; any other value unchanged.
    fn new_value<'a>(&self, value: &'a OsStr) -> &'a OsStr {
        let renamed = self.values.iter().find(|[old, _]| value == *old);
        renamed.map_or(value, |[_, new]| OsStr::new(new))
    }
}

/// Translates the keys of a settings file to the new names. Each keeps its place in the file.
///
/// Errors: a key is given by both names.
pub fn translate_keys(root: &mut DeTable<'_>) -> Result<Vec<Deprecated>, GivenTwice> {
    let mut found = Vec::new();
    translate_table(root, Root, &mut found)?;
    translate_inner(root, &mut found)?;
    let Some((_, services)) = root.iter_mut().find(|(key, _)| key.get_ref() == "service") else {
        return Ok(found);
    };
    match services.get_mut() {
        DeValue::Table(service) => translate_inner(service, &mut found)?,
        DeValue::Array(services) => {
            for service in services.iter_mut() {
                if let DeValue::Table(service) = service.get_mut() {
                    translate_inner(service, &mut found)?;
                }
            }
        }
        // The error for anything else comes from reading it.
        _ => {}
    }
    Ok(found)
}

/// Translates `[limits]`, `[timeouts]` and `[health]` inside `outer`.
fn translate_inner(outer: &mut DeTable<'_>, found: &mut Vec<Deprecated>) -> Result<(), GivenTwice> {
    for (name, table) in [("limits", Limits), ("timeouts", Timeouts), ("health", Health)] {
        let inner = outer.iter_mut().find(|(key, _)| key.get_ref() == name);
        if let Some(DeValue::Table(inner)) = inner.map(|(_, value)| value.get_mut()) {
            translate_table(inner, table, found)?;
        }
    }
    Ok(())
}

fn translate_table(
    keys: &mut DeTable<'_>,
    table: Table,
    found: &mut Vec<Deprecated>,
) -> Result<(), GivenTwice> {
    for row in RENAMED.iter().filter(|row| row.table == table) {
        let [old, new] = row.key;
        let Some(key) = keys.keys().find(|key| key.get_ref() == old).cloned() else { continue };
        let deprecated = Deprecated { old: old.to_owned(), new: new.to_owned(), span: Some(key.span()) };
        if keys.keys().any(|key| key.get_ref() == new) {
            return Err(GivenTwice::new(&deprecated));
        }
        let Some(mut value) = keys.remove(&key) else { continue };
        if let DeValue::String(text) = value.get_mut()
            && let Some([_, renamed]) = row.values.iter().find(|[old, _]| *old == text)
        {
            *text = Cow::Borrowed(renamed);
        }
        keys.insert(Spanned::new(key.span(), Cow::Borrowed(new)), value);
        found.push(deprecated);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::reference::{example_of, parsed};

    fn translate(arguments: &[&str]) -> Result<(Vec<String>, Vec<Deprecated>), GivenTwice> {
        let arguments = ["flick", "run"].iter().chain(arguments).map(OsString::from);
        let (arguments, found) = translate_arguments(arguments)?;
        let arguments = arguments.into_iter().skip(2).map(|argument| argument.into_string().expect("UTF-8"));
        Ok((arguments.collect(), found))
    }

    fn options(arguments: &[String]) -> String {
        parsed(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn every_old_option_means_the_new_one_with_a_warning() {
        for row in RENAMED {
            let [old, new] = row.option.map(|name| format!("--{name}"));
            let value = example_of(row.option[1]);
            let values = row.values.iter().map(|[old, new]| (Some(*old), Some(*new)));
            for (old_value, new_value) in values.chain([(value, value)]) {
                let expected: Vec<String> =
                    std::iter::once(new.clone()).chain(new_value.map(str::to_owned)).collect();
                assert_eq!(
                    translate(&expected.iter().map(String::as_str).collect::<Vec<_>>()),
                    Ok((expected.clone(), Vec::new()))
                );
                let separate: Vec<&str> = std::iter::once(old.as_str()).chain(old_value).collect();
                let attached = old_value.map_or(old.clone(), |value| format!("{old}={value}"));
                for arguments in [separate, vec![attached.as_str()]] {
                    let (translated, found) = translate(&arguments).expect("given once");
                    assert_eq!(options(&translated), options(&expected), "{arguments:?}");
                    let warnings: Vec<String> = found.iter().map(ToString::to_string).collect();
                    assert_eq!(warnings, [format!("`{old}` is deprecated; use `{new}`")], "{arguments:?}");
                    let both = [arguments.clone(), expected.iter().map(String::as_str).collect()].concat();
                    let error = translate(&both).expect_err("given twice");
                    assert!(
                        error.message.contains(&format!("`{old}` and `{new}` are both given")),
                        "{error:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_old_key_means_the_new_one_with_a_warning() {
        for row in RENAMED {
            let [old, new] = row.key;
            let value = example_of(row.option[1]).unwrap_or("true");
            let values = row.values.iter().map(|[old, new]| (*old, *new));
            for (old_value, new_value) in values.chain([(value, value)]) {
                let tables: &[&str] = match row.table {
                    Root => &[""],
                    Limits => &["[limits]", "[service.limits]", "[[service]]\n[service.limits]"],
                    Timeouts => &["[timeouts]", "[service.timeouts]", "[[service]]\n[service.timeouts]"],
                    Health => &["[health]", "[service.health]", "[[service]]\n[service.health]"],
                };
                for table in tables {
                    let line = |key: &str, value: &str| format!("{table}\n{key} = \"{value}\"\n");
                    let (translated, found) = keys(&line(old, old_value)).expect("given once");
                    assert_eq!(
                        translated,
                        keys(&line(new, new_value)).expect("given once").0,
                        "{table} {old}"
                    );
                    let warnings: Vec<String> = found.iter().map(ToString::to_string).collect();
                    assert_eq!(warnings, [format!("`{old}` is deprecated; use `{new}`")]);
                    let at = found[0].span.clone().expect("a key has a place");
                    assert_eq!(&line(old, old_value)[at], old);
                    let both = format!("{}{new} = 1\n", line(old, old_value));
                    let error = keys(&both).expect_err("given twice");
                    assert!(
                        error.message.contains(&format!("`{old}` and `{new}` are both given")),
                        "{error:?}"
                    );
                    assert_eq!(&both[error.span], old);
                    assert_eq!(keys(&line(new, new_value)).expect("given once").1, []);
                }
            }
        }
    }

    /// The keys and values of a file after the translation, without their places.
    fn keys(text: &str) -> Result<(Vec<String>, Vec<Deprecated>), GivenTwice> {
        fn collect(table: &DeTable<'_>, prefix: &str, out: &mut Vec<String>) {
            for (key, value) in table {
                let key = format!("{prefix}.{}", key.get_ref());
                match value.get_ref() {
                    DeValue::Table(inner) => collect(inner, &key, out),
                    DeValue::Array(all) => all
                        .iter()
                        .filter_map(|value| value.get_ref().as_table())
                        .for_each(|inner| collect(inner, &key, out)),
                    DeValue::String(value) => out.push(format!("{key} = {value}")),
                    _ => out.push(key),
                }
            }
        }
        let mut root = DeTable::parse(text).expect("TOML");
        let found = translate_keys(root.get_mut())?;
        let mut out = Vec::new();
        collect(root.get_ref(), "", &mut out);
        Ok((out, found))
    }

    #[test]
    fn other_commands_and_values_are_left_alone() {
        let arguments = ["flick", "top", "--state"].map(OsString::from);
        let translated = translate_arguments(arguments.clone().into_iter()).expect("nothing is given twice");
        assert_eq!(translated, (arguments.to_vec(), Vec::new()));
        let (translated, found) =
            translate(&["--state-dir", "x", "--", "--state"]).expect("nothing is given twice");
        assert_eq!((translated.join(" "), found), ("--state-dir x -- --state".to_owned(), Vec::new()));
    }

    #[test]
    fn no_old_name_is_in_use() {
        let command = <crate::commands::Cli as clap::CommandFactory>::command();
        let run = command.find_subcommand("run").expect("a subcommand");
        let names: Vec<&str> = run.get_arguments().filter_map(clap::Arg::get_long).collect();
        for row in RENAMED {
            assert!(!names.contains(&row.option[0]), "{row:?}");
            assert!(names.contains(&row.option[1]), "{row:?}");
        }
    }
}
