//! Facts of a connection that the kernel has, or the simulated network in its place.

use super::KernelDriver;
use super::upgrade::NamedBy;
use crate::address::{Endpoint, PeerAddr};
use crate::driver::Handle;
use crate::socket;

impl KernelDriver {
    /// Returns how names of claims begin. Simulated networks have names of their own.
    pub(super) fn claims_prefix(&self) -> Box<str> {
        match self {
            KernelDriver::Epoll(_) | KernelDriver::Uring(_) => "flick-upgrade".into(),
            KernelDriver::Simulated(driver) => driver.net().claims_prefix().into(),
        }
    }

    /// Returns the two addresses of a connection: its own and the other side's.
    pub(super) fn addresses_of(&self, conn: Handle) -> Option<(Endpoint, PeerAddr)> {
        let socket = match self {
            KernelDriver::Epoll(driver) => driver.socket_of(conn),
            KernelDriver::Uring(driver) => driver.socket_of(conn),
            KernelDriver::Simulated(driver) => return driver.addresses_of(conn),
        }?;
        Some((socket::local_endpoint(socket).ok()?, socket::peer_addr(socket)))
    }

    /// Returns what both ends know a connection by.
    pub(super) fn named_by(&self, conn: Handle) -> Option<NamedBy<'_>> {
        match self {
            KernelDriver::Epoll(driver) => driver.socket_of(conn).map(NamedBy::of_socket),
            KernelDriver::Uring(driver) => driver.socket_of(conn).map(NamedBy::of_socket),
            KernelDriver::Simulated(driver) => {
                let (local, remote) = driver.addresses_of(conn)?;
                NamedBy::of_addresses(&local, &remote)
            }
        }
    }

    /// Returns how many bytes of a connection the other side was sent, and how many the platform was given.
    pub(super) fn stream_offsets(&self, conn: Handle) -> Option<(u64, u64)> {
        let socket = match self {
            KernelDriver::Epoll(driver) => driver.socket_of(conn),
            KernelDriver::Uring(driver) => driver.socket_of(conn),
            KernelDriver::Simulated(driver) => return driver.stream_offsets(conn),
        }?;
        socket::stream_offsets(socket)
    }

    /// Returns whether the platform has a connection that has not failed.
    pub(super) fn is_live(&self, conn: Handle) -> bool {
        match self {
            KernelDriver::Epoll(driver) => driver.socket_of(conn).is_some(),
            KernelDriver::Uring(driver) => driver.socket_of(conn).is_some(),
            KernelDriver::Simulated(driver) => driver.addresses_of(conn).is_some(),
        }
    }
}
