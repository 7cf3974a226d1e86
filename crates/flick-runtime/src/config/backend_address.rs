//! An element of a channel of backends: its address, weight, rank and mode, and what an operator changes of them.

use std::str::FromStr;

use flick_net::Endpoint;

use crate::limits::WEIGHT_MAX;

/// Mode of a backend: the requests that an operator lets it have. The words are HAProxy's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackendMode {
    /// All.
    #[default]
    Ready,
    /// Those that are sent to it by a key, and none that a policy without a key balances.
    Drain,
    /// None; its connections are closed once the requests in flight are answered.
    Maint,
}

impl BackendMode {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maint => "maint",
        }
    }
}

impl FromStr for BackendMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Ready, Self::Drain, Self::Maint].into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| format!("`{text}` is not a mode; the modes are `ready`, `drain` and `maint`"))
    }
}

/// Changes that an operator has made of a backend at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendOverride {
    /// Its address as its list has it.
    pub backend: Endpoint,
    /// Its mode.
    pub mode: Option<BackendMode>,
    /// Its weight; 0 is as [`BackendMode::Drain`].
    pub weight: Option<u32>,
    /// The address that it has instead.
    pub address: Option<Endpoint>,
}

impl BackendOverride {
    /// Changes nothing of a backend.
    pub fn none(backend: Endpoint) -> Self {
        Self { backend, mode: None, weight: None, address: None }
    }

    /// Whether it changes nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::none(self.backend.clone())
    }

    /// The backend as it is with the changes.
    pub(crate) fn apply(&self, to: &mut BackendAddress) {
        to.mode = self.mode.unwrap_or(to.mode);
        match self.weight {
            Some(0) => to.mode = to.mode.max(BackendMode::Drain),
            Some(weight) => to.weight = weight.min(WEIGHT_MAX),
            None => {}
        }
        if let Some(address) = &self.address {
            to.endpoint.clone_from(address);
        }
    }
}

/// An element of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackendAddress {
    /// Address of the backend.
    pub endpoint: Endpoint,
    /// Weight in picks, relative to the other elements; from 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Rank: elements of the lowest rank are the array; the others are backups that stand in, rank by rank, while all
    /// before them are down.
    pub rank: u16,
    /// The requests that it gets.
    pub mode: BackendMode,
}

impl BackendAddress {
    /// Makes an element of the array with this weight, clamped to its bounds.
    pub fn weighing(endpoint: Endpoint, weight: u32) -> Self {
        Self { endpoint, weight: weight.clamp(1, WEIGHT_MAX), rank: 0, mode: BackendMode::Ready }
    }

    /// Sets the rank.
    pub fn ranking(self, rank: u16) -> Self {
        Self { rank, ..self }
    }

    /// The same with that mode.
    pub fn in_mode(self, mode: BackendMode) -> Self {
        Self { mode, ..self }
    }
}

impl From<Endpoint> for BackendAddress {
    fn from(endpoint: Endpoint) -> Self {
        Self::weighing(endpoint, 1)
    }
}

impl std::fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.endpoint)?;
        if self.weight != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        if self.mode != BackendMode::Ready {
            write!(f, " {}", self.mode.name())?;
        }
        f.write_str(if self.rank > 0 { " backup" } else { "" })
    }
}
