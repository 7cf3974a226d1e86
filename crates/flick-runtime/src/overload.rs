//! Overload: how long a busy worker waits to batch, and which requests it sheds.

pub(crate) mod batch_delay;
pub(crate) mod batch_trial;
pub(crate) mod detector;
