//! A running service whose knobs are turned, at its admin endpoint.
//! Promises: an observation of a process, a generation or values that are not the expected ones is an error that says
//! so, so that no trial measures another setting than its own.

use std::fmt;
use std::io::ErrorKind;
use std::str::FromStr;

use flick_admin::state::{Process, Service, StateReport, TunableNanos};
use flick_admin::{Address, client};
use serde::{Deserialize, Serialize};

use super::kernel::KernelKnobName;

/// Values of the kernel's knobs that a search turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct KernelSetting {
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_khz: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_state_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rx_delay_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gro_flush_timeout_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deferred_hard_irqs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    irq_suspend_timeout_ns: Option<u64>,
}

impl KernelSetting {
    /// No knob of the kernel.
    pub(super) const EMPTY: Self = Self {
        clock_khz: None,
        idle_state_max: None,
        rx_delay_us: None,
        gro_flush_timeout_ns: None,
        deferred_hard_irqs: None,
        irq_suspend_timeout_ns: None,
    };

    fn all(&mut self) -> [(KernelKnobName, &mut Option<u64>); 6] {
        [
            (KernelKnobName::Clock, &mut self.clock_khz),
            (KernelKnobName::IdleStates, &mut self.idle_state_max),
            (KernelKnobName::RxUsecs, &mut self.rx_delay_us),
            (KernelKnobName::GroFlushTimeout, &mut self.gro_flush_timeout_ns),
            (KernelKnobName::DeferHardIrqs, &mut self.deferred_hard_irqs),
            (KernelKnobName::IrqSuspendTimeout, &mut self.irq_suspend_timeout_ns),
        ]
    }

    /// The setting with a value of one knob.
    pub(super) fn with(mut self, name: KernelKnobName, value: u64) -> Self {
        self.all().into_iter().filter(|(own, _)| *own == name).for_each(|(_, own)| *own = Some(value));
        self
    }

    /// The knobs with their values.
    pub(super) fn values(mut self) -> Vec<(KernelKnobName, u64)> {
        self.all().into_iter().filter_map(|(name, value)| Some((name, (*value)?))).collect()
    }

    /// The knobs that have a value.
    pub(super) fn names(self) -> Vec<KernelKnobName> {
        self.values().into_iter().map(|(name, _)| name).collect()
    }

    /// The value of a knob.
    pub(super) fn value(self, name: KernelKnobName) -> Option<u64> {
        self.values().into_iter().find_map(|(own, value)| (own == name).then_some(value))
    }
}

/// The knobs that a search turns; those of flick in microseconds, which is the resolution of tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnobSetting {
    pub(super) busy_poll_us: u64,
    pub(super) batch_delay_max_us: u64,
    pub(super) time_slice_us: u64,
    #[serde(flatten)]
    pub(super) kernel: KernelSetting,
}

impl From<TunableNanos> for KnobSetting {
    fn from(values: TunableNanos) -> Self {
        Self {
            busy_poll_us: values.busy_poll_ns / 1000,
            batch_delay_max_us: values.batch_delay_max_ns / 1000,
            time_slice_us: values.time_slice_ns / 1000,
            kernel: KernelSetting::EMPTY,
        }
    }
}

impl KnobSetting {
    /// The names of `/api/tunables` and `[limits]` of `flick.toml`, with the values in microseconds.
    fn entries(&self) -> [(&'static str, u64); 3] {
        [
            ("busy_poll", self.busy_poll_us),
            ("batch_delay_max", self.batch_delay_max_us),
            ("time_slice", self.time_slice_us),
        ]
    }

    /// All values, in an order that settings with the same knobs share.
    pub(super) fn values(&self) -> Vec<u64> {
        let kernel = self.kernel.values().into_iter().map(|(_, value)| value);
        self.entries().into_iter().map(|(_, value)| value).chain(kernel).collect()
    }

    /// Whether flick's own knobs are the same.
    pub(super) fn has_tunables_of(&self, other: &Self) -> bool {
        self.entries() == other.entries()
    }

    /// Longest time for which a request waits before the service sees it.
    pub(super) fn unseen_us(&self) -> u64 {
        let kernel = self.kernel.values().into_iter().map(|(name, value)| name.delay_us(value));
        self.batch_delay_max_us + kernel.sum::<u64>()
    }

    /// Keys and values as settings have them.
    pub(super) fn settings(&self) -> [(&'static str, String); 3] {
        self.entries().map(|(name, us)| (name, format!("{us}us")))
    }
}

impl fmt::Display for KnobSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.settings().map(|(name, value)| format!("{name} {value}")).join(", "))?;
        let mut kernel = self.kernel.values().into_iter();
        kernel.try_for_each(|(name, value)| write!(f, ", {} {value}{}", name.text(), name.unit()))
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
    /// The service of this name in a report. Errors: there is none.
    pub(super) fn of(name: &str, state: StateReport) -> Result<Self, String> {
        let generation = state.reloads.generation;
        let names: Vec<&str> = state.services.iter().map(|service| service.name.as_str()).collect();
        let known = format!("the services are {}", names.join(", "));
        let service = state.services.into_iter().find(|service| service.name == name);
        let service = service.ok_or_else(|| format!("there is no service `{name}`; {known}"))?;
        Ok(Self { process: state.process, generation, service })
    }

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
        let address = self.address()?;
        let read = || client::state(&address, self.token.as_deref());
        // Of a service that ended within its response, only the second attempt says that it is gone.
        let state = read().or_else(|_| read());
        let state = state.map_err(|error| format!("cannot read the state at {}: {error}", self.admin))?;
        ObservedMoment::of(&self.name, state)
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
