//! Descriptors that are known by their numbers only.
//! Promises: each is owned by one value.
//! Source: sd_listen_fds(3).

use std::os::fd::{FromRawFd, OwnedFd};

/// The first descriptor that systemd hands to a service.
const FIRST_INHERITED: i32 = 3;

/// The descriptor of this number among those that systemd opened for us. The caller has seen that there are so many, and asks
/// for each once.
pub(super) fn inherited(index: u32) -> OwnedFd {
    // SAFETY: by sd_listen_fds(3) these descriptors are open and this process's own; `passage::inherited`, the one caller,
    // has seen the variables that say so and name our process, and runs before anything opens or closes these numbers.
    unsafe { OwnedFd::from_raw_fd(FIRST_INHERITED + index as i32) }
}
