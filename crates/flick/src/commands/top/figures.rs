//! The tables of `flick top`: rates and latencies between two states.
//! Promises: rates of a process that was restarted between the states are unknown, not wrong.

use std::fmt::Write;

use flick_admin::StateReport;
use flick_admin::state::{BackendStats, Service, Sessions, TaskRuns, Times};

/// The tables at one moment.
pub struct Figures {
    /// A line about the process.
    pub title: String,
    /// Services, tasks, backends, program counters, recent events.
    pub tables: Vec<FigureTable>,
    /// Requests per second of all services, if known.
    #[cfg_attr(not(feature = "tui"), expect(dead_code, reason = "only the terminal interface shows it"))]
    pub rate: Option<u64>,
}

/// A table; its first column has names.
pub struct FigureTable {
    /// Its title.
    pub title: &'static str,
    /// Titles of its columns.
    pub heads: &'static [&'static str],
    /// Rows, each with one cell per column.
    pub rows: Vec<Vec<String>>,
}

/// Number of recent events that are shown.
const EVENTS_SHOWN_MAX: usize = 10;

impl Figures {
    /// The tables of `now`, with rates since `before`, and of the connections that were asked for.
    pub fn of(now: &StateReport, before: Option<&StateReport>, listed: &Sessions) -> Self {
        let before = before.filter(|before| {
            before.process.id == now.process.id && before.process.uptime_ms < now.process.uptime_ms
        });
        let elapsed_ms = before.map_or(0, |before| now.process.uptime_ms - before.process.uptime_ms);
        let pairs: Vec<Pair<'_>> = now
            .services
            .iter()
            .map(|service| {
                let same = |other: &&Service| other.name == service.name;
                Pair {
                    now: service,
                    before: before.and_then(|before| before.services.iter().find(same)),
                    elapsed_ms,
                }
            })
            .collect();
        let rate = pairs.iter().map(Pair::requests_rate).sum();
        let tables = vec![
            services(&pairs),
            shared_memory(&pairs),
            connections(listed),
            tasks(&pairs),
            backends(&pairs),
            programs(&pairs),
            events(now),
        ];
        let tables = tables.into_iter().filter(|table| !table.rows.is_empty()).collect();
        Self { title: title(now, before, elapsed_ms), tables, rate }
    }

    /// All tables as text.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.title);
        for table in &self.tables {
            // Writing to a `String` does not fail.
            let _ = writeln!(out, "\n{}", table.title);
            let widths = table.widths();
            let heads = table.heads.iter().map(|head| (*head).to_owned()).collect();
            for row in std::iter::once(&heads).chain(&table.rows) {
                let cells = row.iter().zip(&widths).enumerate().map(|(index, (cell, width))| {
                    if index == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
                });
                let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
            }
        }
        out
    }
}

impl FigureTable {
    /// Width of each column: its longest cell.
    pub fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.heads[column].len()]).max().unwrap_or(0)
        };
        (0..self.heads.len()).map(width).collect()
    }
}

/// A service in both states.
struct Pair<'a> {
    now: &'a Service,
    before: Option<&'a Service>,
    elapsed_ms: u64,
}

impl Pair<'_> {
    fn rate(&self, now: u64, before: Option<u64>) -> Option<u64> {
        let before = before.filter(|_| self.elapsed_ms > 0)?;
        Some(now.saturating_sub(before) * 1000 / self.elapsed_ms)
    }

    fn requests_rate(&self) -> Option<u64> {
        self.rate(self.now.counter("requests"), self.before.map(|before| before.counter("requests")))
    }

    fn errors_rate(&self) -> Option<u64> {
        self.rate(self.now.errors(), self.before.map(Service::errors))
    }
}

fn services(pairs: &[Pair<'_>]) -> FigureTable {
    let row = |pair: &Pair<'_>| {
        let [median, p99] = latencies(&pair.now.times, pair.before.map(|before| &before.times));
        let connections = format!("{} of {}", pair.now.counter("connections_open"), pair.now.max_connections);
        vec![
            pair.now.name.clone(),
            shown(pair.requests_rate()),
            median,
            p99,
            shown(pair.errors_rate()),
            connections,
            pair.now.counter("requests").to_string(),
        ]
    };
    FigureTable {
        title: "Services",
        heads: &["service", "requests/s", "p50", "p99", "errors/s", "client connections", "requests"],
        rows: pairs.iter().map(row).collect(),
    }
}

/// Begin of the counters of outgoing connections that stay with the kernel; the reason follows.
const PLAIN: &str = "shm_plain_";

/// Connections through shared memory, of services that use it, and why others are not.
fn shared_memory(pairs: &[Pair<'_>]) -> FigureTable {
    let uses = |pair: &&Pair<'_>| {
        pair.now.counters.iter().any(|counter| counter.name.starts_with("shm_") && counter.value > 0)
    };
    let row = |pair: &Pair<'_>| {
        let rate =
            |name: &str| pair.rate(pair.now.counter(name), pair.before.map(|before| before.counter(name)));
        let counted = pair.now.counters.iter().filter(|counter| counter.value > 0);
        let plain: Vec<String> = counted
            .filter_map(|counter| Some((counter.value, counter.name.strip_prefix(PLAIN)?)))
            .map(|(count, reason)| format!("{count} {}", reason.replace('_', " ")))
            .collect();
        vec![
            pair.now.name.clone(),
            pair.now.counter("shm_connections_open").to_string(),
            pair.now.counter("shm_upgraded_open").to_string(),
            pair.now.counter("shm_processes").to_string(),
            format!("{} KiB", pair.now.counter("shm_ring_bytes") >> 10),
            shown(rate("shm_bytes_received")),
            shown(rate("shm_bytes_sent")),
            shown(rate("shm_wake_ups")),
            if plain.is_empty() { "-".to_owned() } else { plain.join(", ") },
        ]
    };
    FigureTable {
        title: "Shared memory",
        heads: &[
            "service",
            "connections",
            "upgraded",
            "pairs",
            "rings",
            "received B/s",
            "sent B/s",
            "wake-ups/s",
            "not upgraded",
        ],
        rows: pairs.iter().filter(uses).map(row).collect(),
    }
}

/// Connections of clients and to backends.
fn connections(listed: &Sessions) -> FigureTable {
    let row = |name: String, transport: &str, plain_reason: &str, counts: [u64; 4]| {
        let reason = if plain_reason.is_empty() { "-".to_owned() } else { plain_reason.replace('_', " ") };
        [name, transport.to_owned(), reason]
            .into_iter()
            .chain(counts.map(|count| count.to_string()))
            .collect()
    };
    let clients = listed.sessions.iter().map(|one| {
        let counts = [one.inflight, one.bytes_in, one.bytes_out, one.wake_ups];
        let name = format!("{} {}, client {}", one.service, one.id, one.client);
        row(name, &one.transport, &one.plain_reason, counts)
    });
    let upstream = listed.backend_connections.iter().map(|one| {
        let counts = [one.inflight, one.bytes_in, one.bytes_out, one.wake_ups];
        let name = format!("{} {}, {} {}", one.service, one.id, one.channel, one.backend);
        row(name, &one.transport, &one.plain_reason, counts)
    });
    FigureTable {
        title: "Connections",
        heads: &["connection", "transport", "no shared memory", "in flight", "received", "sent", "wake-ups"],
        rows: clients.chain(upstream).collect(),
    }
}

/// Task runs by kind, over all workers.
fn tasks(pairs: &[Pair<'_>]) -> FigureTable {
    let rows = pairs.iter().flat_map(|pair| {
        let kinds = pair.now.workers.first().map_or(&[][..], |worker| &worker.tasks);
        kinds.iter().filter_map(move |kind| {
            let sum = |service: &Service, read: fn(&TaskRuns) -> u64| -> u64 {
                let all = service.workers.iter().flat_map(|worker| &worker.tasks);
                all.filter(|tasks| tasks.kind == kind.kind).map(read).sum()
            };
            let rate = |read| pair.rate(sum(pair.now, read), pair.before.map(|before| sum(before, read)));
            let runs = rate(|tasks| tasks.runs);
            let busy = rate(|tasks| tasks.busy_ns);
            let each = busy.zip(runs.filter(|runs| *runs > 0)).map(|(busy, runs)| duration(busy / runs));
            (sum(pair.now, |tasks| tasks.runs) > 0).then(|| {
                vec![
                    format!("{}, {}", pair.now.name, kind.kind),
                    shown(runs),
                    each.unwrap_or_else(|| "-".to_owned()),
                    busy.map_or("-".to_owned(), |ns| (ns / 10_000_000).to_string()),
                    shown(rate(|tasks| tasks.slices_exceeded)),
                    sum(pair.now, |tasks| tasks.stolen).to_string(),
                ]
            })
        })
    });
    FigureTable {
        title: "Tasks",
        heads: &["task", "runs/s", "mean time", "% of a core", "slices exceeded/s", "stolen"],
        rows: rows.collect(),
    }
}

fn backends(pairs: &[Pair<'_>]) -> FigureTable {
    let row = |pair: &Pair<'_>, backend: &BackendStats| {
        let before = pair.before.and_then(|before| backend.former(&before.backends));
        let [median, p99] = latencies(&backend.times, before.map(|before| &before.times));
        let state = match backend.mode.as_str() {
            _ if backend.is_draining => "draining".to_owned(),
            "maint" => "maintenance".to_owned(),
            "drain" => "drained by operator".to_owned(),
            _ => backend.health(pair.now.workers.len()),
        };
        vec![
            format!("{}.{}[{}] {}", pair.now.name, backend.channel, backend.element, backend.address),
            state,
            shown(pair.rate(backend.requests, before.map(|before| before.requests))),
            median,
            p99,
            shown(pair.rate(backend.failures, before.map(|before| before.failures))),
            shown(server_errors(backend).and_then(|now| pair.rate(now, before.and_then(server_errors)))),
        ]
    };
    let rows = pairs.iter().flat_map(|pair| pair.now.backends.iter().map(move |backend| row(pair, backend)));
    FigureTable {
        title: "Backends",
        heads: &["backend", "state", "requests/s", "p50", "p99", "errors/s", "5xx/s"],
        rows: rows.collect(),
    }
}

/// Number of 5xx responses of a backend; `None` if its protocol has no status.
fn server_errors(backend: &BackendStats) -> Option<u64> {
    backend.responses_by_class.map(|[.., server_errors]| server_errors)
}

fn programs(pairs: &[Pair<'_>]) -> FigureTable {
    let rows = pairs.iter().flat_map(|pair| {
        pair.now.program.iter().map(|counter| {
            let olds = pair.before.map_or(&[][..], |before| &before.program);
            let old = olds.iter().find(|old| old.name == counter.name).map(|old| old.value.max(0) as u64);
            let rate = if counter.is_gauge { None } else { pair.rate(counter.value.max(0) as u64, old) };
            vec![format!("{}.{}", pair.now.name, counter.name), counter.value.to_string(), shown(rate)]
        })
    });
    FigureTable { title: "Program counters", heads: &["name", "value", "change/s"], rows: rows.collect() }
}

fn events(now: &StateReport) -> FigureTable {
    let latest = now.events.iter().rev().take(EVENTS_SHOWN_MAX);
    let rows = latest.map(|event| {
        let ago_s = now.process.now_ms.saturating_sub(event.at_ms) / 1000;
        vec![format!("{}: {}", event.level, event.text), format!("{ago_s} s ago")]
    });
    FigureTable { title: "Recent warnings and errors", heads: &["event", "time"], rows: rows.collect() }
}

fn title(now: &StateReport, before: Option<&StateReport>, elapsed_ms: u64) -> String {
    let process = &now.process;
    let cpu_ms = before.map(|before| process.cpu_ms.saturating_sub(before.process.cpu_ms));
    let cpu =
        cpu_ms.filter(|_| elapsed_ms > 0).map_or("-".to_owned(), |ms| (ms * 100 / elapsed_ms).to_string());
    format!(
        "flick {}, process {}, up {} s, {} MiB, {cpu} % of a core, {}",
        now.version,
        process.id,
        process.uptime_ms / 1000,
        process.resident_bytes >> 20,
        if now.is_draining { "draining" } else { "serving" }
    )
}

fn shown(rate: Option<u64>) -> String {
    rate.map_or("-".to_owned(), |rate| rate.to_string())
}

fn latencies(now: &Times, before: Option<&Times>) -> [String; 2] {
    let fresh = before.map(|before| now.since(before));
    [0.5, 0.99].map(|share| {
        fresh.as_ref().and_then(|fresh| fresh.quantile_ns(share)).map_or("-".to_owned(), duration)
    })
}

fn duration(ns: u64) -> String {
    match ns {
        0..1_024 => "< 1 us".to_owned(),
        1_024..10_000_000 => format!("{} us", ns / 1_000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use flick_admin::state::{
        BackendStats, CounterValue, Process, Service, Sessions, StateReport, Times, WorkerReport,
    };

    use super::Figures;

    fn state(uptime_ms: u64, requests: i64, buckets: &[(u64, u64)]) -> StateReport {
        let times = Times { sum_ns: 0, buckets: buckets.to_vec() };
        let counter =
            CounterValue { name: "requests".to_owned(), value: requests, ..CounterValue::default() };
        let backend = BackendStats {
            channel: "backends".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            requests: requests as u64,
            is_monitored: true,
            times: times.clone(),
            ..BackendStats::default()
        };
        let service = Service {
            name: "Proxy".to_owned(),
            counters: vec![counter],
            workers: vec![WorkerReport::default()],
            backends: vec![backend],
            times,
            ..Service::default()
        };
        let process = Process { id: 7, uptime_ms, ..Process::default() };
        StateReport { process, services: vec![service], ..StateReport::default() }
    }

    fn check(before: Option<&StateReport>, now: &StateReport, words: &[&str]) {
        let text = Figures::of(now, before, &Sessions::default()).text();
        let line = text.lines().find(|line| line.starts_with("Proxy ")).expect("the service has a row");
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), words, "{text}");
        assert!(text.contains("Proxy.backends[0] 127.0.0.1:1   down"), "{text}");
    }

    #[test]
    fn rates_between_two_states() {
        let before = state(1000, 500, &[(99_999, 500)]);
        let now = state(3000, 2500, &[(99_999, 1490), (4_000_000, 1000), (20_000_000, 10)]);
        check(
            Some(&before),
            &now,
            &["Proxy", "1000", "4000", "us", "4000", "us", "0", "0", "of", "0", "2500"],
        );
    }

    #[test]
    fn address_that_stands_in_a_list_twice_had_the_rates_of_the_first() {
        let of = |uptime_ms, [first, second]: [u64; 2]| {
            let mut state = state(uptime_ms, 0, &[]);
            let backend = state.services[0].backends[0].clone();
            state.services[0].backends = [(0, first), (1, second)]
                .map(|(element, requests)| BackendStats { element, requests, ..backend.clone() })
                .to_vec();
            state
        };
        let (before, now) = (of(1000, [900, 100]), of(2000, [1800, 200]));
        let text = Figures::of(&now, Some(&before), &Sessions::default()).text();
        let rates = [0, 1].map(|element| {
            let row = text.lines().find(|line| line.starts_with(&format!("Proxy.backends[{element}]")));
            row.and_then(|row| row.split_whitespace().nth(3)).map(str::to_owned)
        });
        assert_eq!(rates.map(Option::unwrap_or_default), ["900", "100"], "{text}");
    }

    #[test]
    fn no_rates_without_an_earlier_state_of_the_same_process() {
        let now = state(500, 3, &[(99_999, 3)]);
        let words = ["Proxy", "-", "-", "-", "-", "0", "of", "0", "3"];
        check(None, &now, &words);
        check(Some(&state(900, 2, &[])), &now, &words);
    }
}
