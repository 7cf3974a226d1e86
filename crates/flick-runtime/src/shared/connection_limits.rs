//! Connections per client address and the rate of new clients, for `max-connections-per-ip` and
//! `connection-rate-limit`.
//! Promises: as many addresses as there may be sessions, in memory taken at the start; an address without a connection
//! takes none; touched when a client comes or goes, never for a message.
//! Refuses: to distinguish clients of one IPv6 network: a client with one address there has 2^64 of them.
//! Source: RFC 6177 (a site's subnet is a /64); the generic cell rate algorithm of ITU-T I.371.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use flick_net::PeerAddr;

use crate::limits::ACCEPT_BURST_SHARE;

/// Key under which clients are counted: a whole IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Network(u128);

/// Number of clients of each address, over all workers.
#[derive(Debug)]
pub(crate) struct ConnectionsPerIp {
    // Keyed by a secret of the process, so that no client can choose addresses that collide.
    counts: Mutex<HashMap<Network, u32>>,
}

impl ConnectionsPerIp {
    /// Reserves capacity for twice as many addresses as there may be sessions, so that the table rehashes in place and
    /// never grows.
    pub fn new(max_connections: u32) -> Self {
        Self { counts: Mutex::new(HashMap::with_capacity(max_connections as usize * 2 + 1)) }
    }

    /// Counts a client in, unless its address has as many as it may.
    pub fn take(&self, peer: PeerAddr, most: u32) -> bool {
        let Some(network) = network_of(peer) else { return true };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(network).or_insert(0);
        let fits = *count < most;
        *count += u32::from(fits);
        fits
    }

    /// Whether the next client of this address would be refused.
    pub fn is_full(&self, peer: PeerAddr, most: u32) -> bool {
        let Some(network) = network_of(peer) else { return false };
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&network).is_some_and(|count| *count >= most)
    }

    /// Counts a client out that was counted in.
    pub fn give(&self, peer: PeerAddr) {
        let Some(network) = network_of(peer) else { return };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get_mut(&network).expect("who leaves was counted in");
        *count -= 1;
        if *count == 0 {
            counts.remove(&network);
        }
    }
}

/// A process of this host has no address: it is not counted.
pub(crate) fn network_of(peer: PeerAddr) -> Option<Network> {
    let PeerAddr::Tcp(address) = peer else { return None };
    Some(match address.ip().to_canonical() {
        IpAddr::V4(address) => Network(u128::from(address.to_bits())),
        // Beyond all of IPv4, and a network of its own each.
        IpAddr::V6(address) => Network(address.to_bits() >> 64 << 64 | 1 << 32),
    })
}

/// Rate limiter of new clients, over all workers; its state is a time by the clock of the drivers.
#[derive(Debug, Default)]
pub(crate) struct ConnectionRate {
    due_ns: AtomicU64,
}

impl ConnectionRate {
    /// Lets one client in at `now_ns` where `rate` may come in a second, a share of them at once.
    ///
    /// Errors: it is too early; when it would not be.
    pub fn take(&self, now_ns: u64, rate: u32) -> Result<(), u64> {
        let each_ns = 1_000_000_000 / u64::from(rate.max(1));
        let burst_ns = each_ns * u64::from(rate / ACCEPT_BURST_SHARE).max(1) - each_ns;
        let next = |due_ns: u64| {
            (due_ns <= now_ns.saturating_add(burst_ns)).then(|| due_ns.max(now_ns).saturating_add(each_ns))
        };
        let taken = self.due_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.map(|_| ()).map_err(|due_ns| due_ns.saturating_sub(burst_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionRate, ConnectionsPerIp};
    use flick_net::PeerAddr;

    fn peer(text: &str) -> PeerAddr {
        PeerAddr::Tcp(text.parse().expect("an address"))
    }

    /// Lets them in one after the other, two of each address at most, and says who came in.
    fn check(peers: &[&str], expected: &[bool]) {
        let connection_limits = ConnectionsPerIp::new(8);
        let taken: Vec<bool> = peers.iter().map(|text| connection_limits.take(peer(text), 2)).collect();
        assert_eq!(taken, expected, "{peers:?}");
    }

    #[test]
    fn an_address_has_as_many_clients_as_it_may() {
        check(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.2:3"], &[true, true, false, true]);
        check(&["10.0.0.1:1", "[::ffff:10.0.0.1]:2", "10.0.0.1:3"], &[true, true, false]);
        check(
            &["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8:0:0:9::1]:1", "[2001:db8:0:1::1]:1"],
            &[true, true, false, true],
        );
        check(&["0.0.0.1:1", "0.0.0.1:2", "[::1]:1", "[::1]:2", "[::1]:3"], &[true, true, true, true, false]);
    }

    #[test]
    fn a_closed_connection_frees_capacity_and_an_address_without_clients_takes_no_memory() {
        let connection_limits = ConnectionsPerIp::new(4);
        let before = connection_limits.counts.lock().expect("no panic").capacity();
        for round in 0..10_000_u32 {
            let from = format!("10.{}.{}.1:9", round >> 8 & 255, round & 255);
            assert!(connection_limits.take(peer(&from), 1));
            assert!(connection_limits.is_full(peer(&from), 1));
            connection_limits.give(peer(&from));
            assert!(!connection_limits.is_full(peer(&from), 1));
        }
        assert!(connection_limits.take(PeerAddr::Unix, 0), "a process of this host has no address");
        assert_eq!(
            connection_limits.counts.lock().expect("no panic").capacity(),
            before,
            "the table has not grown"
        );
    }

    #[test]
    fn clients_come_no_faster_than_they_may() {
        let clock = ConnectionRate::default();
        let (mut now_ns, mut let_in) = (7_000_000_000, 0);
        let end_ns = now_ns + 1_000_000_000;
        while now_ns < end_ns {
            match clock.take(now_ns, 50) {
                Ok(()) => let_in += 1,
                Err(again_ns) => {
                    assert!(again_ns > now_ns, "to wait is to wait");
                    now_ns = again_ns;
                }
            }
        }
        // A tenth of a second's worth came at once, and the rest at the rate.
        assert_eq!(let_in, 5 + 49);
    }
}
