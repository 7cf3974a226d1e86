//! Tunables that follow the load of a service: each field is an option of `flick run`, `--tune-...`, and a key of
//! `[tune]` in `flick.toml`.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::units::Bounded;
use crate::commands::load::values::Bound;

/// Default of `--tune-interval`.
const INTERVAL: Duration = Duration::from_secs(10);

/// Default of `--tune-max-busy-poll`.
const MAX_BUSY_POLL: Duration = Duration::from_micros(100);

/// Shortest and longest interval.
const INTERVAL_MIN_US: u64 = 1_000_000;
const INTERVAL_MAX_US: u64 = 3_600_000_000;

/// Effect of what is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FollowMode {
    /// Tunables change
    #[default]
    On,
    /// The log says what would change
    DryRun,
}

/// Tunables that follow load and SLA.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Tuning")]
pub struct TuneSettings {
    /// SLA within which `busy_poll` and `batch_delay_max` follow the load to use the least CPU time: `p99:500us`, or a
    /// p50, p90 or p99.9. Only for a process with one service that has its threads alone. [default: none]
    #[arg(id = "tune_sla", long = "tune-sla", value_name = "BOUND")]
    #[serde(deserialize_with = "bound")]
    sla: Option<Bound>,
    /// Whether tunables change. [default: on]
    #[arg(id = "tune_mode", long = "tune-mode", value_name = "MODE")]
    mode: Option<FollowMode>,
    /// Time between two decisions; longer while there are few requests. 1s to 1h. [default: 10s]
    #[arg(id = "tune_interval", long = "tune-interval", value_name = "DURATION")]
    interval: Option<Bounded<INTERVAL_MIN_US, INTERVAL_MAX_US>>,
    /// Longest `busy_poll`, which is used while nothing shorter keeps the SLA. At most 1ms. [default: 100us]
    #[arg(id = "tune_max_busy_poll", long = "tune-max-busy-poll", value_name = "DURATION")]
    max_busy_poll: Option<Bounded<0, 1_000>>,
    /// Longest `batch_delay_max`, which is used while the SLA is kept with it. At most 10ms. [default: 0]
    #[arg(id = "tune_max_batch_delay", long = "tune-max-batch-delay", value_name = "DURATION")]
    max_batch_delay: Option<Bounded<0, 10_000>>,
}

fn bound<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bound>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}

/// The complete settings of a service that follows its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowPlan {
    /// The latency to keep.
    pub sla: Bound,
    /// Whether tunables change.
    pub mode: FollowMode,
    /// Time between two decisions.
    pub interval: Duration,
    /// Longest busy poll.
    pub max_busy_poll: Duration,
    /// Longest batch delay.
    pub max_batch_delay: Duration,
}

impl FollowPlan {
    /// Merges options and keys; `None`: no SLA is set.
    pub fn resolve(flags: &TuneSettings, file: &TuneSettings) -> Option<Self> {
        Some(Self {
            sla: flags.sla.or(file.sla)?,
            mode: flags.mode.or(file.mode).unwrap_or_default(),
            interval: flags.interval.or(file.interval).map_or(INTERVAL, |time| time.0),
            max_busy_poll: flags.max_busy_poll.or(file.max_busy_poll).map_or(MAX_BUSY_POLL, |time| time.0),
            max_batch_delay: flags
                .max_batch_delay
                .or(file.max_batch_delay)
                .map_or(Duration::ZERO, |time| time.0),
        })
    }
}

impl TuneSettings {
    /// Whether the SLA is set.
    pub fn sets_sla(&self) -> bool {
        self.sla.is_some()
    }

    /// Key of a setting that needs the SLA, if one is set.
    pub fn detail(&self) -> Option<&'static str> {
        let all = [
            ("mode", self.mode.is_some()),
            ("interval", self.interval.is_some()),
            ("max_busy_poll", self.max_busy_poll.is_some()),
            ("max_batch_delay", self.max_batch_delay.is_some()),
        ];
        all.iter().find(|(_, is_set)| *is_set).map(|(key, _)| *key)
    }
}
