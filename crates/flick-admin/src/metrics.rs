//! The state as OpenMetrics text.
//! Promises: every family has its type, its samples stand together, the text ends with `# EOF`; names and labels are
//! legal whatever a program calls its counters.
//! Source: OpenMetrics 1.0.0 (the text format, and the suffixes of each type).

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::state::{Backend, Counter, Dictionary, Reloads, Service, State, TaskRuns, Times};

/// The media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bounds of the buckets: powers of two of nanoseconds, from a microsecond to a minute, which the histograms keep exactly.
const BUCKET_BITS: std::ops::RangeInclusive<u32> = 10..=36;

/// Writes all of it.
pub fn text(state: &State) -> String {
    let mut out = Text::default();
    out.process(state);
    out.platform(&state.services);
    out.tasks(&state.services);
    out.requests(&state.services);
    out.edges(&state.services);
    out.backends(&state.services);
    out.dictionaries(&state.services);
    out.programs(&state.services);
    out.out.push_str("# EOF\n");
    out.out
}

#[derive(Default)]
struct Text {
    out: String,
}

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    fn of(is_gauge: bool) -> Self {
        if is_gauge { Self::Gauge } else { Self::Counter }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// What the name of a plain sample ends with.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Gauge | Self::Histogram => "",
            Self::Info => "_info",
        }
    }
}

type Label<'a> = (&'a str, &'a str);

impl Text {
    fn family(&mut self, name: &str, kind: Kind, unit: &str, help: &str) {
        let _ = writeln!(self.out, "# TYPE {name} {}", kind.word());
        if !unit.is_empty() {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
        if !help.is_empty() {
            let _ = writeln!(self.out, "# HELP {name} {}", escape(help));
        }
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &[Label<'_>], value: impl std::fmt::Display) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        for (index, (label, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.out, "{before}{label}=\"{}\"", escape(value));
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn histogram(&mut self, name: &str, labels: &[Label<'_>], times: &Times) {
        for bits in BUCKET_BITS {
            let bound_ns = 1_u64 << bits;
            let shorter: u64 =
                times.buckets.iter().filter(|(end, _)| *end < bound_ns).map(|(_, count)| count).sum();
            let bound = seconds(bound_ns);
            self.sample(name, "_bucket", &[labels, &[("le", bound.as_str())]].concat(), shorter);
        }
        self.sample(name, "_bucket", &[labels, &[("le", "+Inf")]].concat(), times.count());
        self.sample(name, "_sum", labels, seconds(times.sum_ns));
        self.sample(name, "_count", labels, times.count());
    }

    fn process(&mut self, state: &State) {
        let process = &state.process;
        self.family("flick", Kind::Info, "", "The version of flick.");
        self.sample("flick", "_info", &[("version", &state.version)], 1);
        let start_ms = process.now_ms.saturating_sub(process.uptime_ms);
        self.family(
            "process_start_time_seconds",
            Kind::Gauge,
            "seconds",
            "When the process started, since 1970.",
        );
        self.sample("process_start_time_seconds", "", &[], seconds(start_ms * 1_000_000));
        self.family("process_cpu_seconds", Kind::Counter, "seconds", "Processor time of the process.");
        self.sample("process_cpu_seconds", "_total", &[], seconds(process.cpu_ms * 1_000_000));
        self.family("process_resident_memory_bytes", Kind::Gauge, "bytes", "Memory in use.");
        self.sample("process_resident_memory_bytes", "", &[], process.resident_bytes);
        self.family("process_open_fds", Kind::Gauge, "", "Open file descriptors.");
        self.sample("process_open_fds", "", &[], process.open_files);
        self.family("flick_draining", Kind::Gauge, "", "1 while no new clients are taken.");
        self.sample("flick_draining", "", &[], u8::from(state.is_draining));
        self.reloads(&state.reloads);
        self.family(
            "flick_faults_lost",
            Kind::Counter,
            "",
            "Faults that the tail of them does not show any more.",
        );
        self.sample("flick_faults_lost", "_total", &[], state.faults_lost);
        let help = "Lines of the access log that its file did not take: the disk is full, say.";
        self.family("flick_access_unwritten", Kind::Counter, "", help);
        self.sample("flick_access_unwritten", "_total", &[], state.access_unwritten);
    }

    fn reloads(&mut self, reloads: &Reloads) {
        self.family("flick_generation", Kind::Gauge, "", "Number of what runs now; the first is 1.");
        self.sample("flick_generation", "", &[], reloads.generation);
        self.family("flick_generation_age_seconds", Kind::Gauge, "seconds", "How long it has been running.");
        self.sample("flick_generation_age_seconds", "", &[], seconds(reloads.age_ms * 1_000_000));
        self.family("flick_reloads", Kind::Counter, "", "Reloads that worked.");
        self.sample("flick_reloads", "_total", &[], reloads.ok);
        self.family("flick_reloads_failed", Kind::Counter, "", "Reloads that changed nothing.");
        self.sample("flick_reloads_failed", "_total", &[], reloads.failed);
        let help = "Services of older generations that still serve somebody.";
        self.family("flick_services_older", Kind::Gauge, "", help);
        self.sample("flick_services_older", "", &[], reloads.older);
    }

    /// Counters of the platform: all services have the same ones.
    fn platform(&mut self, services: &[Service]) {
        let Some(first) = services.first() else { return };
        for (index, counter) in first.counters.iter().enumerate() {
            let name = format!("flick_{}", counter.name);
            let kind = Kind::of(counter.is_gauge);
            self.family(&name, kind, "", &counter.help);
            for service in services {
                for (worker, values) in service.workers.iter().enumerate() {
                    let worker = worker.to_string();
                    let labels = [
                        ("service", service.name.as_str()),
                        ("channel", &service.channel),
                        ("worker", &worker),
                    ];
                    let value = values.values.get(index).copied().unwrap_or(0);
                    self.sample(&name, kind.suffix(), &labels, value);
                }
            }
        }
        self.family("flick_sessions_max", Kind::Gauge, "", "Most sessions at a time.");
        for service in services {
            self.sample("flick_sessions_max", "", &[("service", &service.name)], service.sessions_max);
        }
    }

    /// What tasks ran, by kind.
    fn tasks(&mut self, services: &[Service]) {
        type Read = fn(&TaskRuns) -> String;
        let families: [(&str, &str, &str, Read); 4] = [
            ("flick_task_runs", "", "Times that a task ran.", |tasks| tasks.runs.to_string()),
            (
                "flick_task_seconds",
                "seconds",
                "How long tasks ran, estimated from one turn in sixteen.",
                |tasks| seconds(tasks.busy_ns),
            ),
            (
                "flick_task_slices_exceeded",
                "",
                "Times that a task had more to do when its time slice was over.",
                |tasks| tasks.slices_exceeded.to_string(),
            ),
            ("flick_task_stolen", "", "Tasks taken over from another worker.", |tasks| {
                tasks.stolen.to_string()
            }),
        ];
        for (name, unit, help, read) in families {
            self.family(name, Kind::Counter, unit, help);
            for service in services {
                for (index, worker) in service.workers.iter().enumerate() {
                    let index = index.to_string();
                    for tasks in &worker.tasks {
                        let labels = [
                            ("service", service.name.as_str()),
                            ("worker", index.as_str()),
                            ("task", tasks.kind.as_str()),
                        ];
                        self.sample(name, "_total", &labels, read(tasks));
                    }
                }
            }
        }
        let name = "flick_task_slice_seconds";
        self.family(
            name,
            Kind::Histogram,
            "seconds",
            "How long a task ran at a time, in one turn of sixteen.",
        );
        for service in services {
            for (index, worker) in service.workers.iter().enumerate() {
                let labels = [("service", service.name.as_str()), ("worker", &index.to_string())];
                self.histogram(name, &labels, &worker.slices);
            }
        }
    }

    fn requests(&mut self, services: &[Service]) {
        let name = "flick_request_seconds";
        let help =
            "From a request that was taken in to its last reply, handed to the connection of its client.";
        self.family(name, Kind::Histogram, "seconds", help);
        for service in services {
            for (worker, values) in service.workers.iter().enumerate() {
                let worker = worker.to_string();
                let labels =
                    [("service", service.name.as_str()), ("channel", &service.channel), ("worker", &worker)];
                self.histogram(name, &labels, &values.times);
            }
        }
    }

    /// What goes along the edges of the task graphs. Edges of tasks with the same names, such as those of two timers, are one.
    fn edges(&mut self, services: &[Service]) {
        let name = "flick_edge_messages";
        let help = "Messages and events along an edge of the task graph, from task to task.";
        self.family(name, Kind::Counter, "", help);
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
                self.sample(name, "_total", &labels, count);
            }
        }
    }

    /// Whether backends get requests.
    fn health(&mut self, each: &[([Label<'_>; 4], &Backend)]) {
        type Read = fn(&Backend) -> u64;
        let counts: [(&str, &str, Read); 3] = [
            (
                "flick_backend_ejections",
                "Times that a worker put the backend out: too many requests in a row had failed.",
                |backend| backend.ejections,
            ),
            ("flick_backend_check_failures", "Checks of the backend that failed.", |backend| {
                backend.check_failures
            }),
            (
                "flick_backend_shed",
                "Requests that were not sent because the backend had as many as it may.",
                |backend| backend.shed,
            ),
        ];
        for (name, help, read) in counts {
            self.family(name, Kind::Counter, "", help);
            for (labels, backend) in each {
                self.sample(name, "_total", labels, read(backend));
            }
        }
        let gauges: [(&str, &str, Read); 3] = [
            ("flick_backend_out", "Workers that send the backend nothing.", |backend| backend.out),
            (
                "flick_backend_failing",
                "Workers whose checks of the backend fail; where too many fail it gets requests all the same.",
                |backend| backend.failing,
            ),
            (
                "flick_backend_leaving",
                "1 when the backend has left its list and finishes what it has.",
                |backend| backend.is_leaving.into(),
            ),
        ];
        for (name, help, read) in gauges {
            self.family(name, Kind::Gauge, "", help);
            for (labels, backend) in each {
                self.sample(name, "", labels, read(backend));
            }
        }
    }

    fn backends(&mut self, services: &[Service]) {
        let elements: Vec<Vec<String>> = services
            .iter()
            .map(|service| service.backends.iter().map(|backend| backend.element.to_string()).collect())
            .collect();
        let each: Vec<([Label<'_>; 4], &Backend)> = services
            .iter()
            .zip(&elements)
            .flat_map(|(service, elements)| {
                service.backends.iter().zip(elements).map(|(backend, element)| {
                    let labels = [
                        ("service", service.name.as_str()),
                        ("channel", backend.channel.as_str()),
                        ("backend", element.as_str()),
                        ("address", backend.address.as_str()),
                    ];
                    (labels, backend)
                })
            })
            .collect();
        self.family("flick_backend_requests", Kind::Counter, "", "Requests sent to the backend.");
        for (labels, backend) in &each {
            self.sample("flick_backend_requests", "_total", labels, backend.requests);
        }
        let help = "Requests for the backend that flick answered itself.";
        self.family("flick_backend_failures", Kind::Counter, "", help);
        for (labels, backend) in &each {
            self.sample("flick_backend_failures", "_total", labels, backend.failures);
        }
        self.family("flick_backend_up", Kind::Gauge, "", "Workers that are connected to the backend.");
        for (labels, backend) in each.iter().filter(|(_, backend)| backend.is_watched) {
            self.sample("flick_backend_up", "", labels, backend.up);
        }
        self.health(&each);
        let name = "flick_backend_reply_seconds";
        self.family(
            name,
            Kind::Histogram,
            "seconds",
            "From a request that was sent to the backend to its last reply.",
        );
        for (labels, backend) in &each {
            self.histogram(name, labels, &backend.times);
        }
    }

    fn dictionaries(&mut self, services: &[Service]) {
        type Read = fn(&Dictionary) -> u64;
        let families: [(&str, Kind, &str, Read); 8] = [
            ("entries", Kind::Gauge, "Entries now.", |dict| dict.entries),
            ("entries_max", Kind::Gauge, "Entries at most.", |dict| dict.entries_max),
            ("memory_bytes", Kind::Gauge, "Memory, whatever is in it.", |dict| dict.bytes),
            ("hits", Kind::Counter, "Reads that found something.", |dict| dict.hits),
            ("misses", Kind::Counter, "Reads that did not.", |dict| dict.misses),
            ("evictions", Kind::Counter, "Entries that made room.", |dict| dict.evictions),
            ("expirations", Kind::Counter, "Entries whose time was over.", |dict| dict.expirations),
            ("refusals", Kind::Counter, "Writes for which there was no room.", |dict| dict.refusals),
        ];
        if services.iter().all(|service| service.dictionaries.is_empty()) {
            return;
        }
        for (name, kind, help, read) in families {
            let name = format!("flick_dictionary_{name}");
            self.family(&name, kind, "", help);
            for service in services {
                for dict in &service.dictionaries {
                    let labels = [("service", service.name.as_str()), ("dictionary", &dict.name)];
                    self.sample(&name, kind.suffix(), &labels, read(dict));
                }
            }
        }
    }

    /// Counters and gauges of programs, under their own names.
    fn programs(&mut self, services: &[Service]) {
        let mut families: BTreeMap<(String, Kind), Vec<(&str, &Counter)>> = BTreeMap::new();
        for service in services {
            for counter in &service.program {
                let kind = Kind::of(counter.is_gauge);
                families
                    .entry((program_name(&counter.name), kind))
                    .or_default()
                    .push((&service.name, counter));
            }
        }
        let names: Vec<(String, Kind)> = families.keys().cloned().collect();
        for ((name, kind), counters) in families {
            // A counter of one program and a gauge of another may have one name; a family has one type.
            let is_double = kind == Kind::Gauge && names.contains(&(name.clone(), Kind::Counter));
            let name = if is_double { format!("{name}_gauge") } else { name };
            self.family(&name, kind, "", "Of the program.");
            for (service, counter) in counters {
                self.sample(&name, kind.suffix(), &[("service", service)], counter.value);
            }
        }
    }
}

/// The family of a program's counter: its own name, unless that would be taken for one of ours or for a part of a family.
fn program_name(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    let name = name.strip_suffix("_total").filter(|rest| !rest.is_empty()).unwrap_or(&name).to_owned();
    let is_reserved =
        ["_created", "_info", "_bucket", "_count", "_sum", "_total"].iter().any(|end| name.ends_with(end));
    let is_ours = name.starts_with("flick") || name.starts_with("process_");
    let is_no_name = !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    match (is_ours || is_no_name, is_reserved) {
        (true, _) => format!("program_{name}{}", if is_reserved { "_" } else { "" }),
        (false, true) => format!("{name}_"),
        (false, false) => name,
    }
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    let (whole, part) = (ns / 1_000_000_000, ns % 1_000_000_000);
    let part = format!("{part:09}");
    let part = part.trim_end_matches('0');
    if part.is_empty() { format!("{whole}.0") } else { format!("{whole}.{part}") }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::{program_name, seconds};

    #[test]
    fn seconds_are_exact() {
        for (ns, text) in [(0, "0.0"), (1, "0.000000001"), (1024, "0.000001024"), (1 << 36, "68.719476736")] {
            assert_eq!(seconds(ns), text);
        }
    }

    #[test]
    fn programs_keep_their_names_where_they_can() {
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
