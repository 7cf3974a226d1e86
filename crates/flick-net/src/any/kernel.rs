//! Facts of a connection that the kernel has, or the simulated network in its place.

use std::os::fd::BorrowedFd;

use super::KernelDriver;
use super::upgrade::NamedBy;
use crate::address::PeerAddr;
use crate::driver::Handle;
use crate::socket::{self, SocketOwners};

impl KernelDriver {
    /// Returns how names of claims begin. Simulated networks have names of their own.
    pub(super) fn claims_prefix(&self) -> Box<str> {
        match self {
            KernelDriver::Epoll(_) | KernelDriver::Uring(_) => "flick-upgrade".into(),
            KernelDriver::Simulated(driver) => driver.net().claims_prefix().into(),
        }
    }

    /// Returns the socket of a connection; a simulated one has none.
    fn socket_of(&self, conn: Handle) -> Option<BorrowedFd<'_>> {
        match self {
            KernelDriver::Epoll(driver) => driver.socket_of(conn),
            KernelDriver::Uring(driver) => driver.socket_of(conn),
            KernelDriver::Simulated(_) => None,
        }
    }

    /// Returns the address of a connection's other side, unless the kernel has none.
    pub(super) fn peer_of(&self, conn: Handle) -> Option<PeerAddr> {
        match self {
            KernelDriver::Simulated(driver) => Some(driver.addresses_of(conn)?.1),
            _ => self.socket_of(conn).and_then(socket::peer_addr),
        }
    }

    /// Returns what both ends know a connection by.
    pub(super) fn named_by(&self, conn: Handle) -> Option<NamedBy<'_>> {
        match self {
            KernelDriver::Simulated(driver) => {
                let (local, remote) = driver.addresses_of(conn)?;
                NamedBy::of_addresses(&local, &remote)
            }
            _ => self.socket_of(conn).map(NamedBy::of_socket),
        }
    }

    /// Returns whether the other end of a connection belongs to a user, as the kernel knows: the owner of the socket of
    /// TCP, the process that listened at a Unix socket. A simulated network has one user.
    pub(super) fn is_peer_of(&self, conn: Handle, uid: u32, owners: Option<&mut SocketOwners>) -> bool {
        let Some(socket) = self.socket_of(conn) else { return matches!(self, KernelDriver::Simulated(_)) };
        let known = match NamedBy::of_socket(socket) {
            NamedBy::Addresses(local, remote) => {
                owners.and_then(|owners| owners.of_other_end(socket, local, remote))
            }
            NamedBy::Socket(socket) => socket::peer_uid(socket),
        };
        known == Some(uid)
    }

    /// Returns how many bytes of a connection the other side was sent, and how many the platform was given.
    pub(super) fn stream_offsets(&self, conn: Handle) -> Option<(u64, u64)> {
        match self {
            KernelDriver::Simulated(driver) => driver.stream_offsets(conn),
            _ => self.socket_of(conn).and_then(socket::stream_offsets),
        }
    }

    /// Returns whether the platform has a connection that has not failed.
    pub(super) fn is_live(&self, conn: Handle) -> bool {
        match self {
            KernelDriver::Simulated(driver) => driver.addresses_of(conn).is_some(),
            _ => self.socket_of(conn).is_some(),
        }
    }
}
