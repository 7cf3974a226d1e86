//! Metrics of the platform's counters.

use super::Detail;
use super::exposition::{Exposition, Kind, Label, seconds};
use crate::state::{Service, StateReport};

/// A series of a metric family, from one platform counter.
struct Series {
    /// Name of the counter in the state.
    counter: &'static str,
    /// Label of the series within its family.
    label: Option<Label<'static>>,
}

/// A metric family.
struct Family {
    name: &'static str,
    help: &'static str,
    series: &'static [Series],
}

const fn one(counter: &'static str) -> Series {
    Series { counter, label: None }
}

const fn labelled(counter: &'static str, name: &'static str, value: &'static str) -> Series {
    Series { counter, label: Some((name, value)) }
}

const fn family(name: &'static str, help: &'static str, series: &'static [Series]) -> Family {
    Family { name, help, series }
}

/// The gauges among the counters.
const GAUGES: &[Family] = &[
    family("flick_client_connections", "Open client connections.", &[one("connections_open")]),
    family(
        "flick_shm_connections",
        "Open connections through shared memory, of clients and to backends.",
        &[one("shm_connections_open")],
    ),
    family(
        "flick_shm_processes",
        "Pairs of a worker and another process that share connections through shared memory.",
        &[one("shm_processes")],
    ),
    family("flick_shm_ring_bytes", "Bytes of rings in shared memory.", &[one("shm_ring_bytes")]),
    family(
        "flick_shm_upgraded_connections",
        "Open connections of sockets that use shared memory.",
        &[one("shm_upgraded_open")],
    ),
];

/// Time in event-loop iterations: a counter in seconds.
const BUSY: Family = family(
    "flick_worker_busy_seconds",
    "Time in event-loop iterations of workers that share their thread.",
    &[one("busy_ns")],
);

/// Time before sleeps: a counter in seconds.
const SHM_BUSY_POLL: Family = family(
    "flick_shm_busy_poll_seconds",
    "Time in which workers busy-polled shared memory before they slept.",
    &[one("shm_busy_polled_ns")],
);

/// Lines of the access log that were dropped: one series is of the process.
const ACCESS_LOG_DROPPED: Family = family(
    "flick_access_log_lines_dropped",
    "Lines of the access log that were dropped: the writer was too slow, or the file could not be written.",
    &[labelled("access_log_dropped", "reason", "queue_full")],
);

/// All other families: counters.
const COUNTERS: &[Family] = &[
    family(
        "flick_client_connections_accepted",
        "Accepted client connections.",
        &[one("connections_accepted")],
    ),
    family(
        "flick_client_connections_rejected",
        "Client connections rejected by a limit.",
        &[
            labelled("connections_rejected", "reason", "max_connections"),
            labelled("connections_over_ip_limit", "reason", "max_connections_per_ip"),
        ],
    ),
    family(
        "flick_accept_pauses",
        "Times that accepting paused: a limit, or no free file descriptors.",
        &[
            labelled("accept_pauses", "reason", "max_connections"),
            labelled("accept_rate_limited", "reason", "connection_rate_limit"),
        ],
    ),
    family("flick_batch_delays", "Event-loop iterations delayed to batch messages.", &[one("batch_delays")]),
    family(
        "flick_batch_delay_trials",
        "Trials of the batch delay: kept while a worker handled more requests with it.",
        &[
            labelled("batch_trials_kept", "result", "kept"),
            labelled("batch_trials_dropped", "result", "dropped"),
        ],
    ),
    family(
        "flick_connections_migrated",
        "Client connections moved to the next generation (out), or from the previous one (in).",
        &[
            labelled("connections_migrated_out", "direction", "out"),
            labelled("connections_migrated_in", "direction", "in"),
        ],
    ),
    family(
        "flick_connections_dropped",
        "Client connections closed by flick: the client was too slow, or buffers or tables were full.",
        &[
            labelled("slow_clients_dropped", "reason", "client_write_timeout"),
            labelled("clients_evicted", "reason", "evicted"),
            labelled("client_request_timeouts", "reason", "client_request_timeout"),
            labelled("first_byte_timeouts", "reason", "no_request"),
            labelled("exhausted", "reason", "no_capacity"),
        ],
    ),
    family(
        "flick_protocol_errors",
        "Connections closed for a malformed message, by the peer that sent it.",
        &[
            labelled("protocol_errors_client", "peer", "client"),
            labelled("protocol_errors_backend", "peer", "backend"),
        ],
    ),
    family(
        "flick_shm_bytes",
        "Bytes through shared memory.",
        &[
            labelled("shm_bytes_received", "direction", "received"),
            labelled("shm_bytes_sent", "direction", "sent"),
        ],
    ),
    family(
        "flick_shm_upgrades",
        "Times that a connection of a socket began to use shared memory.",
        &[one("shm_upgrades")],
    ),
    family(
        "flick_shm_downgrades",
        "Times that a connection of a socket stopped using shared memory before its end.",
        &[one("shm_downgrades")],
    ),
    family(
        "flick_shm_upgrades_refused",
        "Backend connections that stay on their sockets, and attempts that found a limit reached.",
        &[
            labelled("shm_plain_remote", "reason", "remote"),
            labelled("shm_plain_no_peer", "reason", "no_peer"),
            labelled("shm_plain_refused", "reason", "refused"),
            labelled("shm_plain_other_user", "reason", "other_user"),
            labelled("shm_plain_limit", "reason", "limit"),
            labelled("shm_plain_off", "reason", "off"),
            labelled("shm_plain_short_lived", "reason", "short_lived"),
        ],
    ),
    family(
        "flick_shm_wake_ups",
        "Times that another process woke a worker through shared memory.",
        &[one("shm_wake_ups")],
    ),
    family("flick_truncated_messages", "Connections that ended inside a message.", &[one("truncated")]),
    family("flick_requests", "Requests received from clients.", &[one("requests")]),
    family(
        "flick_responses",
        "Responses sent to clients, including those of flick itself.",
        &[one("replies")],
    ),
    family(
        "flick_responses_by_status",
        "Responses sent to clients by class of their status code, if the protocol has one.",
        &[
            labelled("responses_1xx", "status_class", "1xx"),
            labelled("responses_2xx", "status_class", "2xx"),
            labelled("responses_3xx", "status_class", "3xx"),
            labelled("responses_4xx", "status_class", "4xx"),
            labelled("responses_5xx", "status_class", "5xx"),
        ],
    ),
    family(
        "flick_responses_suppressed",
        "Responses not sent because the client had asked for none.",
        &[one("replies_suppressed")],
    ),
    family(
        "flick_late_responses",
        "Responses that no client received: it was gone, or had its answer already.",
        &[one("late_replies")],
    ),
    family(
        "flick_errors",
        "Requests that flick answered with an error, by reason.",
        &[
            labelled("errors_unavailable", "reason", "unavailable"),
            labelled("errors_timeout", "reason", "timeout"),
            labelled("errors_overload", "reason", "overload"),
            labelled("errors_malformed", "reason", "malformed"),
        ],
    ),
    family(
        "flick_requests_shed",
        "Requests answered with overload because the worker was late, or capacity was not free in time.",
        &[one("requests_shed")],
    ),
    family(
        "flick_retries",
        "Requests sent again: their backend failed before a response began.",
        &[one("requests_retried")],
    ),
    family(
        "flick_retries_denied",
        "Requests not retried: the retry budget was used up.",
        &[one("retries_denied")],
    ),
    family("flick_messages_streamed", "Messages too large to buffer.", &[one("streamed")]),
    family("flick_tunnels", "Connections that became tunnels.", &[one("tunnels")]),
    family(
        "flick_backend_connections_opened",
        "Connections to backends that were established.",
        &[one("backend_connections_opened")],
    ),
    family(
        "flick_backend_connections_closed",
        "Established connections to backends that ended, on either side.",
        &[one("backend_connections_closed")],
    ),
    family(
        "flick_backend_connect_errors",
        "Attempts to connect to backends that failed.",
        &[one("backend_connect_errors")],
    ),
    family(
        "flick_worker_loops",
        "Event-loop iterations of workers that share their thread.",
        &[one("loops")],
    ),
    family(
        "flick_cpu_throttled",
        "Times that a service waited because it had used its CPU share.",
        &[one("cpu_throttled")],
    ),
    family("flick_asks", "Requests that rules sent by `ask`.", &[one("asks")]),
    family("flick_ask_timeouts", "Requests sent by `ask` whose own timeout passed.", &[one("ask_timeouts")]),
    family(
        "flick_rules_suspended",
        "Rules that suspended themselves, or were started by a handler or timer.",
        &[one("rules_suspended")],
    ),
    family(
        "flick_rules_cancelled",
        "Suspended rules cancelled because their client was gone.",
        &[one("rules_cancelled")],
    ),
    family(
        "flick_events_dropped",
        "Events whose handler did not run because no capacity was free.",
        &[one("events_dropped")],
    ),
    family(
        "flick_messages_dropped",
        "Messages of handlers and timers, and copies for mirrors, that were dropped: no client, or no capacity.",
        &[one("sends_dropped")],
    ),
    family(
        "flick_merges",
        "Merges (`foldt`) by result.",
        &[labelled("merges_completed", "result", "success"), labelled("merges_failed", "result", "failure")],
    ),
    family(
        "flick_merge_elements",
        "Elements received by merge tasks, those between tasks included.",
        &[one("merge_elements")],
    ),
    family(
        "flick_access_log_lines",
        "Lines handed to the writer of the access log.",
        &[one("access_log_lines")],
    ),
];

/// Counters that are in no metric of their own: `flick_task_slices_exceeded_total` has them by kind of task, and
/// `exhausted` has those that were refused.
const ELSEWHERE: &[&str] = &["slices_exceeded", "shm_refused"];

/// Writes the platform's metrics of all services.
pub(super) fn write(out: &mut Exposition, state: &StateReport, detail: Detail) {
    let services = &state.services;
    for family in GAUGES {
        write_family(out, services, family, Kind::Gauge, detail, |value| value.to_string());
    }
    out.family(
        "flick_client_connections_max",
        Kind::Gauge,
        "",
        "Limit on client connections, max_connections.",
    );
    services.iter().for_each(|service| out.sample(&[("service", &service.name)], service.max_connections));
    for family in COUNTERS {
        write_family(out, services, family, Kind::Counter, detail, |value| value.to_string());
    }
    for family in [&BUSY, &SHM_BUSY_POLL] {
        write_family(out, services, family, Kind::Counter, detail, |value| seconds(value as u64));
    }
    write_family(out, services, &ACCESS_LOG_DROPPED, Kind::Counter, detail, |value| value.to_string());
    out.sample(&[("reason", "write_error")], state.access_dropped);
}

fn write_family(
    out: &mut Exposition,
    services: &[Service],
    family: &Family,
    kind: Kind,
    detail: Detail,
    shown: impl Fn(i64) -> String,
) {
    let unit = if family.name.ends_with("_seconds") { "seconds" } else { "" };
    out.family(family.name, kind, unit, family.help);
    for service in services {
        for Series { counter, label } in family.series {
            // Services that share no thread, or whose protocol has no status, lack some counters.
            let Some(index) = service.counters.iter().position(|known| known.name == *counter) else {
                continue;
            };
            let labels: Vec<Label<'_>> =
                [("service", service.name.as_str())].into_iter().chain(*label).collect();
            match detail {
                Detail::Service => out.sample(&labels, shown(service.counters[index].value)),
                Detail::PerWorker => {
                    for (number, worker) in service.workers.iter().enumerate() {
                        let number = number.to_string();
                        let labels = [labels.as_slice(), &[("worker", &number)]].concat();
                        out.sample(&labels, shown(worker.values.get(index).copied().unwrap_or(0)));
                    }
                }
            }
        }
    }
}

/// Names of the platform's counters that the metrics know.
pub fn counter_names() -> impl Iterator<Item = &'static str> {
    let families = COUNTERS.iter().chain(GAUGES).chain([&BUSY, &ACCESS_LOG_DROPPED]);
    families.flat_map(|family| family.series).map(|series| series.counter).chain(ELSEWHERE.iter().copied())
}
