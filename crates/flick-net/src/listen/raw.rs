//! Descriptors inherited from systemd, which are known by their numbers only.
//! Promises: each is owned by one value.
//! Source: sd_listen_fds(3).

use std::os::fd::{FromRawFd, OwnedFd};

/// The first descriptor that systemd passes to a service (`SD_LISTEN_FDS_START`).
const LISTEN_FDS_START: i32 = 3;

/// Takes ownership of the inherited descriptor with this index. The caller has checked `LISTEN_FDS` and asks once per
/// index.
pub(super) fn take_inherited_fd(index: u32) -> OwnedFd {
    // SAFETY: by sd_listen_fds(3) these descriptors are open and belong to this process;
    // `listen::inherited_sockets`, the one caller, has checked `LISTEN_FDS` and that `LISTEN_PID` names this process,
    // and runs before anything opens or closes these numbers.
    unsafe { OwnedFd::from_raw_fd(LISTEN_FDS_START + index as i32) }
}
