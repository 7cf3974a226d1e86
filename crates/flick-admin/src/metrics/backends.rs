//! Metrics of backends.

use std::collections::BTreeMap;

use super::exposition::{Exposition, Kind, Label};
use crate::state::{BackendStats, Service};

/// A metric family: name, help, and value.
type Family = (&'static str, &'static str, fn(&BackendStats) -> u64);

const COUNTERS: [Family; 7] = [
    ("flick_backend_requests", "Requests sent to the backend.", |backend| backend.requests),
    ("flick_backend_errors", "Requests for the backend that flick answered with an error.", |backend| {
        backend.failures
    }),
    ("flick_backend_sent_bytes", "Bytes sent to the backend.", |backend| backend.bytes_sent),
    ("flick_backend_received_bytes", "Bytes received from the backend.", |backend| backend.bytes_received),
    ("flick_backend_ejections", "Ejections of the backend for failed requests, by all workers.", |backend| {
        backend.ejections
    }),
    ("flick_backend_health_check_failures", "Failed health checks of the backend.", |backend| {
        backend.health_check_failures
    }),
    (
        "flick_backend_requests_rejected",
        "Requests not sent because the backend had max_requests_per_backend in flight.",
        |backend| backend.rejected,
    ),
];

/// Gauges of backends to which workers connect without a client.
const CONNECTED: [Family; 2] = [
    ("flick_backend_up", "Whether a worker is connected to the backend.", |backend| {
        u64::from(backend.workers_connected > 0)
    }),
    ("flick_backend_workers_connected", "Workers that are connected to the backend.", |backend| {
        backend.workers_connected
    }),
];

const GAUGES: [Family; 3] = [
    ("flick_backend_ejected", "Workers that have ejected the backend.", |backend| backend.workers_ejected),
    (
        "flick_backend_health_check_failing",
        "Workers whose health checks of the backend fail, whether they have ejected it or not.",
        |backend| backend.workers_failing,
    ),
    ("flick_backend_draining", "Whether the backend was removed from its list and is draining.", |backend| {
        backend.is_draining.into()
    }),
];

/// Classes of status codes, in the order of their counts.
const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Writes the metrics of all backends. An address that a channel has several times, or that is also draining, is one
/// series.
pub(super) fn write(out: &mut Exposition, services: &[Service]) {
    let mut merged: BTreeMap<[&str; 3], BackendStats> = BTreeMap::new();
    for service in services {
        for backend in &service.backends {
            let key = [service.name.as_str(), &backend.channel, &backend.address];
            merged.entry(key).and_modify(|same| same.merge(backend)).or_insert_with(|| backend.clone());
        }
    }
    let with_labels = merged.iter().map(|([service, channel, address], backend)| {
        let labels: [Label<'_>; 3] = [("service", service), ("channel", channel), ("backend", address)];
        (labels, backend)
    });
    let each: Vec<([Label<'_>; 3], &BackendStats)> = with_labels.collect();
    for (name, help, read) in COUNTERS {
        out.family(name, Kind::Counter, "", help);
        each.iter().for_each(|(labels, backend)| out.sample(labels, read(backend)));
    }
    let help = "Responses received from the backend by class of their status code, if the protocol has one.";
    out.family("flick_backend_responses_by_status", Kind::Counter, "", help);
    for ([service, channel, address], backend) in &each {
        let counts = backend.responses_by_class.iter().flatten();
        for (class, count) in STATUS_CLASSES.iter().zip(counts) {
            out.sample(&[*service, *channel, *address, ("status_class", class)], count);
        }
    }
    for (name, help, read) in CONNECTED {
        out.family(name, Kind::Gauge, "", help);
        let monitored = each.iter().filter(|(_, backend)| backend.is_monitored);
        monitored.for_each(|(labels, backend)| out.sample(labels, read(backend)));
    }
    for (name, help, read) in GAUGES {
        out.family(name, Kind::Gauge, "", help);
        each.iter().for_each(|(labels, backend)| out.sample(labels, read(backend)));
    }
    let help =
        "The mode of the backend, in the label: ready, drain (no request without a key) or maint (none).";
    out.family("flick_backend_mode", Kind::Gauge, "", help);
    for ([service, channel, address], backend) in &each {
        out.sample(&[*service, *channel, *address, ("mode", &backend.mode)], 1);
    }
    let help = "Time from sending a request to the backend to the end of its response.";
    out.family("flick_backend_request_duration_seconds", Kind::Histogram, "seconds", help);
    each.iter().for_each(|(labels, backend)| out.histogram(labels, &backend.times));
}
