//! Holders of something scarce, in the order in which they are closed: clients by what their address holds in all, then
//! each by itself.
//! Promises: the order depends on what is held alone, never on who asked last; no allocation after `new`.
//! Not here: what is scarce, and when clients are closed for it (`worker/eviction.rs`).

use std::cmp::Reverse;

use crate::shared::connection_limits::Network;
use crate::slab::Key;

/// Amount that one client holds.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    /// The client.
    pub client: Key,
    /// Its address; a client without one is alone.
    pub network: Option<Network>,
    /// Bytes or connections that it holds.
    pub amount: u64,
    /// Of clients of one address, the one with the lowest rank goes first.
    pub rank: u64,
}

/// Room for a list of holders.
#[derive(Debug, Default)]
pub struct Holders {
    /// Each with what its address holds in all.
    list: Vec<(u64, Holding)>,
}

impl Holders {
    /// Room for that many.
    pub fn new(holders_max: usize) -> Self {
        Self { list: Vec::with_capacity(holders_max) }
    }

    /// Adds a holder; one for which there is no room is left out.
    pub fn add(&mut self, holding: Holding) {
        if self.list.len() < self.list.capacity() {
            self.list.push((holding.amount, holding));
        }
    }

    /// The holders in the order in which they are closed, each with what its address holds in all.
    pub fn ordered(&mut self) -> impl Iterator<Item = (u64, Holding)> + '_ {
        self.list.sort_unstable_by_key(|(_, holding)| holding.network);
        let is_same =
            |a: &(u64, Holding), b: &(u64, Holding)| a.1.network.is_some() && a.1.network == b.1.network;
        for clients in self.list.chunk_by_mut(is_same) {
            let total = clients.iter().map(|(_, holding)| holding.amount).sum();
            clients.iter_mut().for_each(|client| client.0 = total);
        }
        self.list.sort_unstable_by_key(|(total, holding)| (Reverse(*total), holding.network, holding.rank));
        self.list.iter().copied()
    }

    /// Forgets all holders.
    pub fn clear(&mut self) {
        self.list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Holders, Holding};
    use crate::shared::connection_limits::network_of;
    use crate::slab::Key;
    use flick_net::PeerAddr;

    /// The order of clients, each with the last number of its address (none for 0) and what it holds.
    fn check(holders: &[(u8, u64)], expected: &[u32]) {
        let mut list = Holders::new(holders.len());
        for (index, (address, amount)) in (0..).zip(holders) {
            let peer = PeerAddr::Tcp(([10, 0, 0, *address], 1).into());
            let network = network_of(peer).filter(|_| *address > 0);
            let (client, amount) = (Key { index, generation: 0 }, *amount);
            list.add(Holding { client, network, amount, rank: u64::MAX - amount });
        }
        let order: Vec<u32> = list.ordered().map(|(_, holding)| holding.client.index).collect();
        assert_eq!(order, expected, "{holders:?}");
    }

    #[test]
    fn clients_of_the_address_that_holds_most_go_first() {
        check(&[(1, 5), (2, 9), (1, 6)], &[2, 0, 1]);
        check(&[(1, 5), (2, 12), (1, 6)], &[1, 2, 0]);
        check(&[(0, 5), (0, 7), (1, 6)], &[1, 2, 0]);
    }
}
