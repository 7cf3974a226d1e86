//! The state as Prometheus metrics, in the OpenMetrics format or the classic text format.
//! Promises: a family has one type and its samples are consecutive; names and labels are valid whatever a program
//! calls its counters; counters end in `_total`, units are seconds and bytes.
//! Start reading at [`text`]; `metrics/platform.rs` names the platform's counters, `metrics/exposition.rs` writes.
//! Source: OpenMetrics 1.0.0; Prometheus text format 0.0.4; Prometheus' metric naming guidelines.

mod backends;
mod exposition;
mod platform;

use std::collections::{BTreeMap, BTreeSet};

use crate::state::{
    CounterValue, DictionaryStats, Reloads, Service, StateReport, TaskRuns, Times, TunableNanos,
};
pub use exposition::Format;
use exposition::{Exposition, Kind, seconds};
pub use platform::counter_names;

/// Level of detail of the metrics: series per service or per worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// One series per service.
    Service,
    /// Counters of the platform and of tasks have one series per worker.
    PerWorker,
}

/// Writes all metrics.
pub fn text(state: &StateReport, format: Format, detail: Detail) -> String {
    let mut out = Exposition::new(format);
    process(&mut out, state);
    platform::write(&mut out, state, detail);
    tasks(&mut out, &state.services, detail);
    requests(&mut out, &state.services);
    tunables(&mut out, &state.services);
    edges(&mut out, &state.services);
    backends::write(&mut out, &state.services);
    dictionaries(&mut out, &state.services);
    programs(&mut out, &state.services);
    out.finish()
}

fn process(out: &mut Exposition, state: &StateReport) {
    let process = &state.process;
    out.family("flick_build", Kind::Info, "", "Version, commit and target of flick.");
    let build = [("version", state.version.as_str()), ("commit", &state.commit), ("target", &state.target)];
    out.sample(&build, 1);
    let start_ms = process.now_ms.saturating_sub(process.uptime_ms);
    out.family("process_start_time_seconds", Kind::Gauge, "seconds", "Start time of the process since 1970.");
    out.sample(&[], seconds(start_ms * 1_000_000));
    out.family("process_cpu_seconds", Kind::Counter, "seconds", "User and system CPU time of the process.");
    out.sample(&[], seconds(process.cpu_ms * 1_000_000));
    out.family("process_resident_memory_bytes", Kind::Gauge, "bytes", "Resident memory of the process.");
    out.sample(&[], process.resident_bytes);
    out.family("process_open_fds", Kind::Gauge, "", "Open file descriptors of the process.");
    out.sample(&[], process.open_files);
    out.family("flick_draining", Kind::Gauge, "", "Whether the process drains and accepts no new clients.");
    out.sample(&[], u8::from(state.is_draining));
    reloads(out, &state.reloads);
    let help = "Warnings and errors that /api/state no longer shows; the log has them.";
    out.family("flick_recent_events_dropped", Kind::Counter, "", help);
    out.sample(&[], state.events_dropped);
    let help =
        "Lines of the log that were dropped: standard error was not read, or a program wrote too many.";
    out.family("flick_log_lines_dropped", Kind::Counter, "", help);
    out.sample(&[("reason", "queue_full")], state.log_lines_dropped);
    out.sample(&[("reason", "rate_limit")], state.program_lines_dropped);
}

fn reloads(out: &mut Exposition, reloads: &Reloads) {
    let help = "Number of the current generation of programs and settings; the first is 1.";
    out.family("flick_config_generation", Kind::Gauge, "", help);
    out.sample(&[], reloads.generation);
    let help = "Time since the current generation started.";
    out.family("flick_config_generation_age_seconds", Kind::Gauge, "seconds", help);
    out.sample(&[], seconds(reloads.age_ms * 1_000_000));
    out.family("flick_config_reloads", Kind::Counter, "", "Reloads by result.");
    out.sample(&[("result", "success")], reloads.succeeded);
    out.sample(&[("result", "failure")], reloads.failed);
    out.family("flick_draining_generations", Kind::Gauge, "", "Old generations that still serve clients.");
    out.sample(&[], reloads.draining);
}

/// Runs of tasks, by kind.
fn tasks(out: &mut Exposition, services: &[Service], detail: Detail) {
    type Read = fn(&TaskRuns) -> u64;
    let families: [(&str, &str, &str, Read); 4] = [
        ("flick_task_runs", "", "Task runs by kind of task.", |tasks| tasks.runs),
        (
            "flick_task_busy_seconds",
            "seconds",
            "Time in task runs, estimated from one event-loop iteration in sixteen.",
            |tasks| tasks.busy_ns,
        ),
        ("flick_task_slices_exceeded", "", "Task runs that ended with their time slice.", |tasks| {
            tasks.slices_exceeded
        }),
        ("flick_task_stolen", "", "Tasks taken from another worker.", |tasks| tasks.stolen),
    ];
    for (name, unit, help, read) in families {
        out.family(name, Kind::Counter, unit, help);
        for service in services {
            let kinds = service.workers.first().map_or(&[][..], |worker| &worker.tasks);
            for kind in kinds.iter().map(|tasks| tasks.kind.as_str()) {
                let of_worker = service.workers.iter().map(|worker| {
                    worker.tasks.iter().filter(|tasks| tasks.kind == kind).map(read).sum::<u64>()
                });
                let labels = [("service", service.name.as_str()), ("task", kind)];
                let shown = |value: u64| if unit.is_empty() { value.to_string() } else { seconds(value) };
                match detail {
                    Detail::Service => out.sample(&labels, shown(of_worker.sum())),
                    Detail::PerWorker => of_worker.enumerate().for_each(|(index, value)| {
                        let worker = index.to_string();
                        out.sample(&[labels[0], labels[1], ("worker", &worker)], shown(value));
                    }),
                }
            }
        }
    }
    let help = "Duration of task runs, sampled in one event-loop iteration of sixteen.";
    out.family("flick_task_run_duration_seconds", Kind::Histogram, "seconds", help);
    for service in services {
        let mut all = Times::default();
        service.workers.iter().for_each(|worker| all.merge(&worker.slices));
        out.histogram(&[("service", &service.name)], &all);
    }
}

fn requests(out: &mut Exposition, services: &[Service]) {
    let help = "Time from receiving a request to handing its last response bytes to the client connection.";
    out.family("flick_request_duration_seconds", Kind::Histogram, "seconds", help);
    for service in services {
        out.histogram(&[("service", &service.name)], &service.times);
    }
}

/// Settings that can be changed while the services run.
fn tunables(out: &mut Exposition, services: &[Service]) {
    type Read = fn(&TunableNanos) -> u64;
    let families: [(&str, &str, Read); 4] = [
        ("flick_busy_poll_seconds", "Time that an idle worker polls before it sleeps.", |values| {
            values.busy_poll_ns
        }),
        (
            "flick_batch_delay_max_seconds",
            "Longest time that a busy worker waits to batch messages.",
            |values| values.batch_delay_max_ns,
        ),
        ("flick_time_slice_seconds", "Longest time that a task runs before the next one.", |values| {
            values.time_slice_ns
        }),
        (
            "flick_overload_queue_delay_seconds",
            "Target queueing delay, above which the service sheds load.",
            |values| values.overload_queue_delay_ns,
        ),
    ];
    for (name, help, read) in families {
        out.family(name, Kind::Gauge, "seconds", help);
        for service in services {
            out.sample(&[("service", &service.name)], seconds(read(&service.tunables)));
        }
    }
}

/// Messages along the edges of the task graphs. Edges between tasks of the same names, such as those of two timers, are
/// one series.
fn edges(out: &mut Exposition, services: &[Service]) {
    let help = "Messages and events along an edge of the task graph.";
    out.family("flick_edge_messages", Kind::Counter, "", help);
    for service in services {
        let tasks = &service.graph.tasks;
        let mut counts: BTreeMap<[&str; 3], u64> = BTreeMap::new();
        for edge in &service.graph.edges {
            if let Some(count) = edge.count {
                let labels = [tasks[edge.from].name.as_str(), &tasks[edge.to].name, &edge.kind];
                *counts.entry(labels).or_default() += count;
            }
        }
        for ([from, to, kind], count) in counts {
            let labels = [("service", service.name.as_str()), ("from", from), ("to", to), ("kind", kind)];
            out.sample(&labels, count);
        }
    }
}

fn dictionaries(out: &mut Exposition, services: &[Service]) {
    type Read = fn(&DictionaryStats) -> u64;
    let families: [(&str, Kind, &str, &str, Read); 10] = [
        ("entries", Kind::Gauge, "", "Entries in the dictionary.", |dict| dict.entries),
        ("entries_max", Kind::Gauge, "", "Maximum number of entries.", |dict| dict.entries_max),
        ("memory_bytes", Kind::Gauge, "bytes", "Memory of the dictionary.", |dict| dict.bytes),
        ("used_bytes", Kind::Gauge, "bytes", "Memory that the entries take, without the index.", |dict| {
            dict.bytes_used
        }),
        ("hits", Kind::Counter, "", "Lookups that found an entry.", |dict| dict.hits),
        ("misses", Kind::Counter, "", "Lookups that found no entry.", |dict| dict.misses),
        ("evictions", Kind::Counter, "", "Entries removed for new ones.", |dict| dict.evictions),
        ("expirations", Kind::Counter, "", "Entries that expired.", |dict| dict.expirations),
        ("rejected_writes", Kind::Counter, "", "Writes rejected because the dictionary was full.", |dict| {
            dict.refusals
        }),
        ("snapshot_errors", Kind::Counter, "", "Snapshots that could not be written.", |dict| {
            dict.snapshot_errors
        }),
    ];
    if services.iter().all(|service| service.dictionaries.is_empty()) {
        return;
    }
    for (name, kind, unit, help, read) in families {
        out.family(&format!("flick_dictionary_{name}"), kind, unit, help);
        for service in services {
            for dict in &service.dictionaries {
                out.sample(&[("service", service.name.as_str()), ("dictionary", &dict.name)], read(dict));
            }
        }
    }
}

/// Counters and gauges of programs, by their own names.
fn programs(out: &mut Exposition, services: &[Service]) {
    let mut families: BTreeMap<(Kind, &str), Vec<(&str, &CounterValue)>> = BTreeMap::new();
    for service in services {
        for counter in &service.program {
            let family = families.entry((Kind::of(counter.is_gauge), &counter.name)).or_default();
            family.push((&service.name, counter));
        }
    }
    let mut used = BTreeSet::new();
    for ((kind, own), counters) in families {
        let mut name = program_name(own);
        // A counter of one program and a gauge of another may have the same name; a family has one type.
        if kind == Kind::Gauge && used.contains(&name) {
            name.push_str("_current");
        }
        // As `hits_total` beside `hits`.
        while !used.insert(name.clone()) {
            name.push('_');
        }
        out.family(
            &name,
            kind,
            "",
            if kind == Kind::Gauge { "Gauge of a program." } else { "Counter of a program." },
        );
        for (service, counter) in counters {
            out.sample(&[("service", service)], counter.value);
        }
    }
}

/// The family of a program's counter: its name, unless that is reserved for flick or for a part of a family.
fn program_name(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    let name = name.strip_suffix("_total").filter(|rest| !rest.is_empty()).unwrap_or(&name).to_owned();
    let is_suffix =
        ["_created", "_info", "_bucket", "_count", "_sum", "_total"].iter().any(|end| name.ends_with(end));
    let is_prefix = name.starts_with("flick") || name.starts_with("process_");
    let is_invalid = !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    match (is_prefix || is_invalid, is_suffix) {
        (true, _) => format!("program_{name}{}", if is_suffix { "_" } else { "" }),
        (false, true) => format!("{name}_"),
        (false, false) => name,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Detail, Format, program_name, text};
    use crate::state::{CounterValue, Service, StateReport};

    #[test]
    fn counters_of_two_names_were_one_series() {
        let counter = |(name, is_gauge): (&str, bool)| CounterValue {
            name: name.to_owned(),
            is_gauge,
            ..CounterValue::default()
        };
        let own = [
            ("hits", false),
            ("hits_total", false),
            ("x_sum", false),
            ("x_sum_", false),
            ("flick_x", false),
            ("program_flick_x", false),
            ("größe", false),
            ("grüße", false),
            ("q", false),
            ("q", true),
            ("q_current", true),
        ];
        let count = own.len();
        let service = |name: &str, own: &[(&str, bool)]| Service {
            name: name.to_owned(),
            program: own.iter().copied().map(counter).collect(),
            ..Service::default()
        };
        let services = vec![service("one", &own[..9]), service("two", &own[9..])];
        let state = StateReport { services, ..StateReport::default() };
        for format in [Format::OpenMetrics, Format::Classic] {
            let text = text(&state, format, Detail::Service);
            let (mut types, mut series, mut programs) = (BTreeSet::new(), BTreeSet::new(), 0);
            for line in text.lines() {
                if let Some(family) = line.strip_prefix("# TYPE ") {
                    assert!(types.insert(family.split(' ').next()), "twice: {line}");
                } else if !line.starts_with('#') {
                    let key = line.rsplit_once(' ').expect("a value stands behind the series").0;
                    assert!(series.insert(key), "twice: {line}");
                    let is_platforms = key.starts_with("flick_") || key.starts_with("process_");
                    programs += usize::from(!is_platforms);
                }
            }
            assert_eq!(programs, count, "{text}");
        }
    }

    #[test]
    fn program_counter_keeps_its_name_unless_reserved() {
        for (given, name) in [
            ("hits", "hits"),
            ("hits_total", "hits"),
            ("_total", "_total_"),
            ("cache_sum", "cache_sum_"),
            ("flick_requests", "program_flick_requests"),
            ("process_cpu_seconds_total", "program_process_cpu_seconds"),
            ("größe", "gr__e"),
            ("2nd", "program_2nd"),
        ] {
            assert_eq!(program_name(given), name, "{given}");
        }
    }
}
