//! The limits of this crate.
//!
//! Promises: no simulation, grid or search of the crate grows past a constant named here.

/// Requests of one simulated run.
pub const ARRIVALS_MAX: usize = 1 << 20;

/// Cores of a simulated server.
pub const CORES_MAX: usize = 64;

/// Observations that a search keeps: the cost of a step grows with the cube.
pub const TRIALS_MAX: usize = 100;

/// Settings of a grid.
pub const GRID_MAX: usize = 1024;

/// Idle periods from which the next one is predicted, as in Linux's menu governor.
pub const IDLE_HISTORY: usize = 8;
