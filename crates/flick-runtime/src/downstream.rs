//! Clients: their connections, the messages that arrive on them, and their deadlines.

pub(crate) mod body;
pub(crate) mod deadlines;
pub(crate) mod inbox;
pub(crate) mod session;
