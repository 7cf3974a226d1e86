//! Calls from generated code to the platform while a rule runs.
//! Promises: no call waits for a peer; each is bounded. Both engines make the same calls in the same order.
//! Refuses: I/O. Sends and asks are lists that the platform executes afterwards.

/// A load-balancing policy: how an element of an array of channels is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Consistent hashing on a ring, placed as twemproxy places it (ketama with fnv1a_64); needs the key.
    Ketama,
    /// Highest random weight of key and element; needs the key.
    Rendezvous,
    /// Each element in turn, per worker; the key is empty.
    RoundRobin,
    /// The healthy element with the fewest requests in flight from this worker; the key is empty.
    LeastLoaded,
    /// The less loaded of two random elements; the key is empty.
    TwoChoices,
}

/// A call of the platform. Words are `Int` unless noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostCall {
    /// `() -> Int`: nanoseconds since 1970 UTC; may be constant during one activation between suspensions.
    Now,
    /// `() -> Uint`.
    Random,
    /// `(Bytes)`: logs a line; the platform limits the rate.
    Log,
    /// `(Int)`: adds to the counter or gauge of that number.
    CounterAdd(u32),
    /// `(Int)`: sets the gauge.
    GaugeSet(u32),
    /// `() -> Int`: the approximate value over all workers.
    CounterGet(u32),
    /// `(Chan) -> Bool`: the element's backend is up or untried; `false` outside the array.
    Alive,
    /// `(Chan) -> Int`: requests in flight on it from this worker; 0 outside the array.
    Load,
    /// `(Chan) -> Bytes` of 18 bytes: address (IPv4 mapped into IPv6) and port, big-endian; zeros when unknown.
    Peer,
    /// `(Chan, Bytes) -> Int`: index of an element of the array.
    Pick(Policy),
    /// `(Bytes key) -> Bytes`: a copy in the output; missing when there is no entry or it has expired.
    DictGet(u32),
    /// `(Bytes key) -> Bool`.
    DictHas(u32),
    /// `(Bytes key, Bytes value)`: writes, or refuses and counts when full.
    DictPut(u32),
    /// `(Bytes key) -> Bool`: whether there was an entry.
    DictRemove(u32),
    /// `() -> Int`: the approximate number of entries.
    DictLen(u32),
    /// `() -> Int`: bytes of memory that the entries take.
    DictBytes(u32),
    /// `() -> Int`: entries removed for new ones since the start.
    DictEvictions(u32),
    /// `() -> Int`: the approximate number of client connections of all services of the program that are open.
    OpenClients,
    /// `(Bytes key, Int attempt) -> Bytes`: as `DictGet`, and remembers the version. From attempt `DICT_ATTEMPTS_MAX -
    /// 1` on, the entry is locked until the commit, which then succeeds.
    DictBegin(u32),
    /// `(Bytes key, Bytes value) -> Bool`: writes if the entry is unchanged since `DictBegin`; `false`: retry from
    /// there.
    DictCommit(u32),
    /// `(Bytes key) -> Bool`: as `DictCommit`, but removes the entry.
    DictCommitRemoved(u32),
}

/// The platform, as generated code sees it. `channel` is an index in `Program::channels`, `element` in its array.
pub trait Host {
    /// [`HostCall::Now`].
    fn now_ns(&mut self) -> i64;
    /// [`HostCall::Random`].
    fn random(&mut self) -> u64;
    /// [`HostCall::Log`].
    fn log(&mut self, text: &[u8]);
    /// [`HostCall::CounterAdd`].
    fn counter_add(&mut self, counter: u32, amount: i64);
    /// [`HostCall::GaugeSet`].
    fn gauge_set(&mut self, gauge: u32, value: i64);
    /// [`HostCall::CounterGet`].
    fn counter_get(&mut self, counter: u32) -> i64;
    /// [`HostCall::Alive`].
    fn alive(&mut self, channel: u32, element: u64) -> bool;
    /// [`HostCall::Load`].
    fn load(&mut self, channel: u32, element: u64) -> i64;
    /// [`HostCall::Peer`].
    fn peer(&mut self, channel: u32, element: u64) -> [u8; 18];
    /// [`HostCall::Pick`].
    fn pick(&mut self, policy: Policy, channel: u32, key: &[u8]) -> i64;
    /// [`HostCall::DictGet`]: writes the value into `out`, returns its length. A value longer than `out` is a broken
    /// invariant.
    fn dict_get(&mut self, dict: u32, key: &[u8], out: &mut [u8]) -> Option<usize>;
    /// [`HostCall::DictHas`].
    fn dict_has(&mut self, dict: u32, key: &[u8]) -> bool;
    /// [`HostCall::DictPut`].
    fn dict_put(&mut self, dict: u32, key: &[u8], value: &[u8]);
    /// [`HostCall::DictRemove`].
    fn dict_remove(&mut self, dict: u32, key: &[u8]) -> bool;
    /// [`HostCall::DictLen`].
    fn dict_len(&mut self, dict: u32) -> i64;
    /// [`HostCall::DictBytes`].
    fn dict_bytes(&mut self, dict: u32) -> i64;
    /// [`HostCall::DictEvictions`].
    fn dict_evictions(&mut self, dict: u32) -> i64;
    /// [`HostCall::OpenClients`].
    fn open_clients(&mut self) -> i64;
    /// [`HostCall::DictBegin`].
    fn dict_begin(&mut self, dict: u32, key: &[u8], attempt: i64, out: &mut [u8]) -> Option<usize>;
    /// [`HostCall::DictCommit`] and, with `None`, [`HostCall::DictCommitRemoved`].
    fn dict_commit(&mut self, dict: u32, key: &[u8], value: Option<&[u8]>) -> bool;
}

/// A platform without state: for parsers and builders, and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn now_ns(&mut self) -> i64 {
        0
    }
    fn random(&mut self) -> u64 {
        0
    }
    fn log(&mut self, _text: &[u8]) {}
    fn counter_add(&mut self, _counter: u32, _amount: i64) {}
    fn gauge_set(&mut self, _gauge: u32, _value: i64) {}
    fn counter_get(&mut self, _counter: u32) -> i64 {
        0
    }
    fn alive(&mut self, _channel: u32, _element: u64) -> bool {
        false
    }
    fn load(&mut self, _channel: u32, _element: u64) -> i64 {
        0
    }
    fn peer(&mut self, _channel: u32, _element: u64) -> [u8; 18] {
        [0; 18]
    }
    fn pick(&mut self, _policy: Policy, _channel: u32, _key: &[u8]) -> i64 {
        0
    }
    fn dict_get(&mut self, _dict: u32, _key: &[u8], _out: &mut [u8]) -> Option<usize> {
        None
    }
    fn dict_has(&mut self, _dict: u32, _key: &[u8]) -> bool {
        false
    }
    fn dict_put(&mut self, _dict: u32, _key: &[u8], _value: &[u8]) {}
    fn dict_remove(&mut self, _dict: u32, _key: &[u8]) -> bool {
        false
    }
    fn dict_len(&mut self, _dict: u32) -> i64 {
        0
    }
    fn dict_bytes(&mut self, _dict: u32) -> i64 {
        0
    }
    fn dict_evictions(&mut self, _dict: u32) -> i64 {
        0
    }
    fn open_clients(&mut self) -> i64 {
        0
    }
    fn dict_begin(&mut self, _dict: u32, _key: &[u8], _attempt: i64, _out: &mut [u8]) -> Option<usize> {
        None
    }
    fn dict_commit(&mut self, _dict: u32, _key: &[u8], _value: Option<&[u8]>) -> bool {
        true
    }
}
