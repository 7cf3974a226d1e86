//! An element of a channel of backends: its address, weight and rank.

use flick_net::Endpoint;

use crate::limits::WEIGHT_MAX;

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
}

impl BackendAddress {
    /// Makes an element of the array with this weight, clamped to its bounds.
    pub fn weighing(endpoint: Endpoint, weight: u32) -> Self {
        Self { endpoint, weight: weight.clamp(1, WEIGHT_MAX), rank: 0 }
    }

    /// Sets the rank.
    pub fn ranking(self, rank: u16) -> Self {
        Self { rank, ..self }
    }
}

impl From<Endpoint> for BackendAddress {
    fn from(endpoint: Endpoint) -> Self {
        Self { endpoint, weight: 1, rank: 0 }
    }
}

impl std::fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.endpoint)?;
        if self.weight != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        f.write_str(if self.rank > 0 { " backup" } else { "" })
    }
}
