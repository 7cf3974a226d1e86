//! A connection that belongs to one client of a relay.
//! Promises: a leg leads to the next leg of the same client; a client that leaves gets all of them back.
//! Not here: the other states of a connection.

use super::{BackendConn, BackendConnState, Purpose, RelayLeg, ReplyProgress};
use crate::downstream::body::RemainingBody;
use crate::downstream::inbox::Completeness;
use crate::slab::Key;

impl RelayLeg {
    /// The client that it belongs to.
    #[inline]
    pub fn client(&self) -> Key {
        self.client
    }
}

impl BackendConn {
    fn leg(&self) -> Option<&RelayLeg> {
        match &self.state {
            BackendConnState::RelayLeg(leg)
            | BackendConnState::Connecting { purpose: Purpose::RelayLeg(leg), .. } => Some(leg),
            _ => None,
        }
    }

    fn leg_mut(&mut self) -> Option<&mut RelayLeg> {
        match &mut self.state {
            BackendConnState::RelayLeg(leg)
            | BackendConnState::Connecting { purpose: Purpose::RelayLeg(leg), .. } => Some(leg),
            _ => None,
        }
    }

    /// A connection that was just begun belongs to `client` alone, which sends to `element` on it.
    pub fn begin_relay_leg(&mut self, client: Key, element: u64, next: Option<u32>, is_picked: bool) {
        let BackendConnState::Connecting { purpose, .. } = &mut self.state else {
            panic!("a leg of a relay is a new connection");
        };
        let reply = ReplyProgress::Head;
        *purpose = Purpose::RelayLeg(RelayLeg { client, element, next, is_picked, is_fresh: true, reply });
    }

    /// The client that it belongs to, if it is connected as a leg of a relay.
    #[inline]
    pub fn relay_client(&self) -> Option<Key> {
        match &self.state {
            BackendConnState::RelayLeg(leg) => Some(leg.client),
            _ => None,
        }
    }

    /// The element of its channel that the client sends to on it.
    pub fn relay_element(&self) -> Option<u64> {
        self.leg().map(|leg| leg.element)
    }

    /// The next leg of the same client.
    pub fn next_leg(&self) -> Option<u32> {
        self.leg().and_then(|leg| leg.next)
    }

    /// The leg behind it has closed; `next` is behind that one.
    pub fn set_next_leg(&mut self, next: Option<u32>) {
        if let Some(leg) = self.leg_mut() {
            leg.next = next;
        }
    }

    /// Returns how much of the next message must have arrived before it is taken: `of_replies`, except on a relay leg.
    pub fn completeness(&mut self, of_replies: Completeness) -> Completeness {
        match &mut self.state {
            BackendConnState::RelayLeg(leg) => Completeness::of_relay(&mut leg.is_fresh),
            _ => of_replies,
        }
    }

    /// Its client has left. Returns the next leg, and the body that is not looked at any more.
    pub fn leave_relay(&mut self, in_order: bool) -> (Option<u32>, Option<RemainingBody>) {
        let body = self.download().map(|download| download.body);
        let left = self.leg().map(|leg| (leg.next, body));
        if let BackendConnState::Connecting { purpose, .. } = &mut self.state {
            *purpose = Purpose::Nothing;
        } else if left.is_some() {
            self.state = BackendConnState::Draining { in_order };
        }
        left.unwrap_or_default()
    }
}
