//! A model of a server's latency and energy, and the search for the setting that fits a load.
//! Promises: no input or output, no clock; the same seed gives the same result.
//! Not here: the settings of a real machine (`flick tune --knobs`).
#![forbid(unsafe_code)]

pub mod follow;
mod gaussian;
pub mod limits;
pub mod machine;
pub mod plot;
pub mod published;
mod random;
mod search;
mod setting;
mod simulate;

pub use machine::{Machine, Path};
pub use random::SeededRandom;
pub use search::{Prediction, Search, Trial};
pub use setting::{CLOCKS_GHZ, DELAYS_US, Delivery, Setting, grid};
pub use simulate::{OfferedLoad, RunResult, simulate};
