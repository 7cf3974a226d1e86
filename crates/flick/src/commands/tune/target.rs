//! A running service whose knobs are turned, at its admin endpoint.
//! Promises: an observation of a process, a generation or values that are not the expected ones is an error that says
//! so, so that no trial measures another setting than its own.

use std::fmt;
use std::io::ErrorKind;
use std::str::FromStr;

use flick_admin::state::{Process, Service, TunableNanos};
use flick_admin::{Address, client};
use serde::{Deserialize, Serialize};

/// The knobs that a search turns, in microseconds, which is the resolution of tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnobSetting {
    pub(super) busy_poll_us: u64,
    pub(super) batch_delay_max_us: u64,
    pub(super) time_slice_us: u64,
}

impl From<TunableNanos> for KnobSetting {
    fn from(values: TunableNanos) -> Self {
        Self {
            busy_poll_us: values.busy_poll_ns / 1000,
            batch_delay_max_us: values.batch_delay_max_ns / 1000,
            time_slice_us: values.time_slice_ns / 1000,
        }
    }
}

impl KnobSetting {
    /// The names of `/api/tunables` and `[limits]` of `flick.toml`, with the values in microseconds.
    pub(super) fn entries(&self) -> [(&'static str, u64); 3] {
        [
            ("busy_poll", self.busy_poll_us),
            ("batch_delay_max", self.batch_delay_max_us),
            ("time_slice", self.time_slice_us),
        ]
    }

    /// Keys and values as settings have them.
    pub(super) fn settings(&self) -> [(&'static str, String); 3] {
        self.entries().map(|(name, us)| (name, format!("{us}us")))
    }
}

impl fmt::Display for KnobSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.settings().map(|(name, value)| format!("{name} {value}")).join(", "))
    }
}

/// The address of a service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TunedService {
    /// The admin endpoint, as text.
    pub(super) admin: String,
    pub(super) token: Option<String>,
    /// Name of the service.
    pub(super) name: String,
}

/// A service at one moment.
#[derive(Clone, Debug)]
pub(super) struct ObservedMoment {
    pub(super) process: Process,
    pub(super) generation: u64,
    pub(super) service: Service,
}

impl ObservedMoment {
    pub(super) fn knobs(&self) -> KnobSetting {
        self.service.tunables.into()
    }

    /// Whether its workers are shared with other services or limited, so that they neither poll nor delay batches.
    pub(super) fn shares_threads(&self) -> bool {
        self.service.counters.iter().any(|counter| counter.name == "loops")
    }
}

impl TunedService {
    fn address(&self) -> Result<Address, String> {
        Address::from_str(&self.admin)
    }

    /// Whether the service is expected to run on this machine.
    pub(super) fn is_local(&self) -> bool {
        match self.address() {
            Ok(Address::Tcp(address)) => address.ip().is_loopback(),
            Ok(Address::Unix(_)) => true,
            Err(_) => false,
        }
    }

    /// Observes the service. Errors: why it cannot be observed.
    pub(super) fn observe(&self) -> Result<ObservedMoment, String> {
        let state = client::state(&self.address()?, self.token.as_deref())
            .map_err(|error| format!("cannot read the state at {}: {error}", self.admin))?;
        let generation = state.reloads.generation;
        let names: Vec<&str> = state.services.iter().map(|service| service.name.as_str()).collect();
        let known = format!("the services are {}", names.join(", "));
        let service = state.services.into_iter().find(|service| service.name == self.name);
        let service = service.ok_or_else(|| format!("there is no service `{}`; {known}", self.name))?;
        Ok(ObservedMoment { process: state.process, generation, service })
    }

    /// Whether no process has its admin endpoint there.
    pub(super) fn is_gone(&self) -> bool {
        let refused = [ErrorKind::ConnectionRefused, ErrorKind::NotFound];
        self.address().is_ok_and(|address| {
            client::get(&address, "/healthz", None).is_err_and(|error| refused.contains(&error.kind()))
        })
    }

    /// Sets the knobs. Errors: why they are as they were, or why that is unknown.
    pub(super) fn set(&self, knobs: &KnobSetting) -> Result<(), String> {
        let values = knobs.settings().map(|(name, value)| format!("&{name}={value}"));
        let path = format!("/api/tunables?service={}{}", self.name, values.concat());
        let reply = client::post(&self.address()?, &path, self.token.as_deref())
            .map_err(|error| format!("cannot set tunables at {}: {error}", self.admin))?;
        match reply.status {
            200 => Ok(()),
            _ => Err(client::refusal(&reply)),
        }
    }
}
