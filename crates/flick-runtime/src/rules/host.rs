//! Host of a worker's rules: `flick_abi::Host` over the shared state, the worker's clock and its backends.
//! Promises: no call waits, none allocates (a line of the log excepted, and there are few of those); in the simulator
//! time and randomness come from the run's seed.
//! Not here: the health of backends, which the worker knows and shows through [`Backends`].

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flick_abi::limits::DICT_ATTEMPTS_MAX;
use flick_abi::{Host, Policy};
use flick_dict::PendingUpdate;
use flick_net::{Endpoint, PeerAddr};

use crate::backend_set::load_balancer::{Backends, BalancerState, LoadBalancer};
use crate::limits::{LOG_LINES_PER_S_MAX, SWEEP_BUCKETS_MAX, SWEEP_ROUND_NS};
use crate::observe::program_log;
use crate::state::State;

/// An address as the language has it: 16 bytes of IPv6, IPv4 mapped into that, then the port, big-endian.
pub fn peer_bytes(address: std::net::SocketAddr) -> [u8; 18] {
    let ip = match address.ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        std::net::IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// [`peer_bytes`] of a backend's address; zeros for a Unix socket and shared memory.
pub fn endpoint_bytes(endpoint: &Endpoint) -> [u8; 18] {
    match endpoint {
        Endpoint::Tcp(address) => peer_bytes(*address),
        Endpoint::Unix(_) | Endpoint::Shm(_) | Endpoint::Descriptor(_) => [0; 18],
    }
}

/// [`peer_bytes`] of a client's address; zeros for a process of this host.
pub fn client_bytes(peer: PeerAddr) -> [u8; 18] {
    match peer {
        PeerAddr::Tcp(address) => peer_bytes(address),
        PeerAddr::Unix | PeerAddr::Shm => [0; 18],
    }
}

/// The last pick without a key of an activation.
#[derive(Clone, Copy, Debug)]
pub struct BackendPick {
    /// Index of the channel.
    pub channel: u32,
    /// Index of the element that was picked.
    pub element: u64,
    /// Policy that picked it.
    pub policy: Policy,
}

/// State that one worker keeps for its rules. [`Self::view`] makes a [`RuleHost`] of it for each activation.
#[derive(Debug)]
pub struct WorkerHost {
    state: Arc<State>,
    balancer: Arc<LoadBalancer>,
    worker: usize,
    balancer_state: BalancerState,
    /// State of the picks of retries, which do not advance the state of first picks.
    retry_balancer_state: BalancerState,
    now_ns: i64,
    random: u64,
    log: LogLimit,
    begun: Option<(u32, PendingUpdate)>,
    picked: Option<BackendPick>,
    swept_ns: i64,
}

impl WorkerHost {
    /// The host of worker number `worker`.
    pub fn new(state: Arc<State>, balancer: Arc<LoadBalancer>, worker: usize) -> Self {
        assert!(worker < state.workers(), "the state was made for fewer workers");
        let [balancer_state, retry_balancer_state] =
            [balancer.balancer_state(worker), balancer.balancer_state(worker)];
        let random = state.seed_of(worker);
        let now_ns = state.wall_ns(0);
        Self {
            state,
            balancer,
            worker,
            balancer_state,
            retry_balancer_state,
            now_ns,
            random,
            log: LogLimit::default(),
            begun: None,
            picked: None,
            swept_ns: now_ns,
        }
    }

    /// Sets the time by the driver's clock; once per event-loop iteration is enough.
    pub fn set_now(&mut self, driver_now_ns: u64) {
        self.now_ns = self.state.wall_ns(driver_now_ns);
    }

    /// Picks fall elsewhere from now on: the lists of backends have changed.
    pub fn set_balancer(&mut self, balancer: Arc<LoadBalancer>) {
        self.balancer = balancer;
        self.balancer.begin(&mut self.balancer_state);
        self.balancer.begin(&mut self.retry_balancer_state);
    }

    /// The last pick without a key since this was asked last.
    pub fn take_picked(&mut self) -> Option<BackendPick> {
        self.picked.take()
    }

    /// Picks again without a key, among other backends. The state of first picks does not change: otherwise the pick
    /// after each retry would be the backend that fails.
    pub fn pick_again<B: Backends + ?Sized>(&mut self, policy: Policy, channel: u32, backends: &B) -> u64 {
        let WorkerHost { balancer, retry_balancer_state, random, .. } = self;
        balancer.pick(retry_balancer_state, policy, channel, b"", backends, || draw(random))
    }

    /// The shared state.
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// The program's counters of this worker.
    pub(crate) fn counters(&self) -> &Arc<[AtomicU64]> {
        self.state.counters_of(self.worker)
    }

    /// Returns the host that rules see: this one together with the current backends.
    pub fn view<'a, B: Backends + ?Sized>(&'a mut self, backends: &'a B) -> RuleHost<'a, B> {
        RuleHost { host: self, backends }
    }

    /// Removes expired entries from a few buckets of each dictionary, so that all are visited in [`SWEEP_ROUND_NS`].
    /// Every worker may call it; the first one does the work.
    pub fn sweep(&mut self) {
        let passed_ns = self.now_ns.saturating_sub(self.swept_ns).clamp(0, SWEEP_ROUND_NS);
        if self.worker != 0 || passed_ns == 0 {
            return;
        }
        self.swept_ns = self.now_ns;
        for dict in self.state.dicts() {
            let share = dict.dictionary.buckets() as u128 * passed_ns as u128 / SWEEP_ROUND_NS as u128;
            dict.dictionary.sweep(self.clock(), (share as usize + 1).min(SWEEP_BUCKETS_MAX));
        }
    }

    fn clock(&self) -> u64 {
        self.now_ns.max(0) as u64
    }

    fn count_read<T>(&self, dict: u32, found: Option<T>) -> Option<T> {
        let used = self.state.dict_use(self.worker, dict);
        if found.is_some() {
            used.hits.add(1)
        } else {
            used.misses.add(1)
        }
        found
    }
}

/// A worker's host during one activation.
pub struct RuleHost<'a, B: ?Sized> {
    host: &'a mut WorkerHost,
    backends: &'a B,
}

impl<B: Backends + ?Sized> Host for RuleHost<'_, B> {
    fn now_ns(&mut self) -> i64 {
        self.host.now_ns
    }

    fn random(&mut self) -> u64 {
        draw(&mut self.host.random)
    }

    fn log(&mut self, text: &[u8]) {
        let Some(left_out) = self.host.log.admit(self.host.now_ns) else {
            program_log::leave_out();
            return;
        };
        if left_out > 0 {
            tracing::warn!(target: "program", left_out, "lines of the program were left out: too many a second");
        }
        tracing::info!(target: "program", "{}", Line(text));
    }

    fn counter_add(&mut self, counter: u32, amount: i64) {
        self.host.state.counter_add(self.host.worker, counter, amount);
    }

    fn gauge_set(&mut self, gauge: u32, value: i64) {
        self.host.state.gauge_set(gauge, value);
    }

    fn counter_get(&mut self, counter: u32) -> i64 {
        self.host.state.counter_get(counter)
    }

    fn alive(&mut self, channel: u32, element: u64) -> bool {
        self.backends.is_alive(channel, element)
    }

    fn load(&mut self, channel: u32, element: u64) -> i64 {
        self.backends.load(channel, element)
    }

    fn peer(&mut self, channel: u32, element: u64) -> [u8; 18] {
        self.backends.peer(channel, element)
    }

    fn pick(&mut self, policy: Policy, channel: u32, key: &[u8]) -> i64 {
        let backends = self.backends;
        let WorkerHost { balancer, balancer_state, random, .. } = &mut *self.host;
        let draw = || draw(random);
        let element = balancer.pick(balancer_state, policy, channel, key, backends, draw);
        if matches!(policy, Policy::RoundRobin | Policy::LeastLoaded | Policy::TwoChoices) {
            self.host.picked = Some(BackendPick { channel, element, policy });
        }
        element as i64
    }

    fn dict_get(&mut self, dict: u32, key: &[u8], out: &mut [u8]) -> Option<usize> {
        let found = self.host.state.dict(dict).get(key, self.host.clock(), out);
        self.host.count_read(dict, found)
    }

    fn dict_has(&mut self, dict: u32, key: &[u8]) -> bool {
        let found = self.host.state.dict(dict).has(key, self.host.clock());
        self.host.count_read(dict, found.then_some(())).is_some()
    }

    fn dict_put(&mut self, dict: u32, key: &[u8], value: &[u8]) {
        self.host.state.dict(dict).put(key, value, self.host.clock());
    }

    fn dict_remove(&mut self, dict: u32, key: &[u8]) -> bool {
        self.host.state.dict(dict).remove(key, self.host.clock())
    }

    fn dict_len(&mut self, dict: u32) -> i64 {
        self.host.state.dict(dict).len() as i64
    }

    fn dict_bytes(&mut self, dict: u32) -> i64 {
        self.host.state.dict(dict).bytes_used() as i64
    }

    fn dict_evictions(&mut self, dict: u32) -> i64 {
        self.host.state.dict(dict).counts().evictions as i64
    }

    fn open_clients(&mut self) -> i64 {
        self.host.state.open_clients()
    }

    fn dict_begin(&mut self, dict: u32, key: &[u8], attempt: i64, out: &mut [u8]) -> Option<usize> {
        assert!(self.host.begun.is_none(), "an update begins only when the last one has ended");
        let exclusive = attempt >= DICT_ATTEMPTS_MAX - 1;
        let (found, begun) = self.host.state.dict(dict).begin(key, self.host.clock(), exclusive, out);
        self.host.begun = Some((dict, begun));
        self.host.count_read(dict, found)
    }

    fn dict_commit(&mut self, dict: u32, key: &[u8], value: Option<&[u8]>) -> bool {
        let (begun_in, begun) = self.host.begun.take().expect("an update ends that began");
        assert_eq!(begun_in, dict, "an update ends in the dictionary it began in");
        self.host.state.dict(dict).commit(begun, key, value, self.host.clock())
    }
}

/// Lines of the log that a program may still write.
#[derive(Debug, Default)]
struct LogLimit {
    second: i64,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    /// Whether a line may be written now; then also how many were left out since the last one.
    fn admit(&mut self, now_ns: i64) -> Option<u64> {
        let second = now_ns.div_euclid(1_000_000_000);
        if second != self.second {
            (self.second, self.lines) = (second, 0);
        }
        if self.lines >= LOG_LINES_PER_S_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Bytes of a program as one line: what is not text, and what would end or forge a line, is escaped.
struct Line<'a>(&'a [u8]);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.utf8_chunks() {
            for character in part.valid().chars() {
                if character.is_control() {
                    write!(f, "{}", character.escape_default())?;
                } else {
                    f.write_char(character)?;
                }
            }
            for byte in part.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// SplitMix64: not for secrets.
fn draw(random: &mut u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    crate::backend_set::load_balancer::mix(*random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Origin, SIMULATED_EPOCH_NS};
    use flick_abi::Program;
    use flick_abi::limits::DICT_ATTEMPTS_MAX;

    fn program() -> Program {
        let dict = |name: &str, expire_ns| flick_abi::Dict {
            name: name.into(),
            entries_max: 10,
            bytes_max: None,
            key_bytes_max: 8,
            value_bytes_max: 16,
            expire_ns,
            evict: flick_abi::Evict::Lru,
            snapshot: None,
            layout: 1,
        };
        let counter = |name: &str, is_gauge| flick_abi::Counter { name: name.into(), is_gauge };
        Program {
            name: "p".into(),
            channels: Vec::new(),
            rules: Vec::new(),
            protocols: Vec::new(),
            merges: Vec::new(),
            handlers: Vec::new(),
            timers: Vec::new(),
            dicts: vec![dict("plain", None), dict("short", Some(1_000))],
            counters: vec![counter("served", false), counter("open", true)],
            state_words: 0,
            init_state: None,
            bounds: flick_abi::Bounds::default(),
        }
    }

    fn two_workers(seed: u64) -> (WorkerHost, WorkerHost) {
        let state = State::new(&program(), 2, Origin::Simulated(seed)).expect("small dictionaries fit");
        let (state, balancer) = (Arc::new(state), Arc::new(LoadBalancer::default()));
        let host = |worker| WorkerHost::new(Arc::clone(&state), Arc::clone(&balancer), worker);
        (host(0), host(1))
    }

    #[test]
    fn counters_add_up_over_workers_and_gauges_are_one() {
        let (mut a, mut b) = two_workers(1);
        a.view(&()).counter_add(0, 3);
        b.view(&()).counter_add(0, 4);
        a.view(&()).counter_add(1, 5);
        b.view(&()).counter_add(1, -2);
        assert_eq!((a.view(&()).counter_get(0), b.view(&()).counter_get(1)), (7, 3));
        b.view(&()).gauge_set(1, 40);
        assert_eq!(a.view(&()).counter_get(1), 40);
        let values: Vec<_> =
            a.state().counters().into_iter().map(|c| (c.name, c.is_gauge, c.value)).collect();
        assert_eq!(values, [("served".into(), false, 7), ("open".into(), true, 40)]);
    }

    #[test]
    fn what_one_worker_writes_another_reads() {
        let (mut a, mut b) = two_workers(1);
        let mut out = [0; 16];
        a.view(&()).dict_put(0, b"key", b"value");
        assert_eq!(b.view(&()).dict_get(0, b"key", &mut out), Some(5));
        assert_eq!((&out[..5], b.view(&()).dict_len(0)), (&b"value"[..], 1));
        assert!(!b.view(&()).dict_has(1, b"key"), "another dictionary");
        assert!(b.view(&()).dict_remove(0, b"key") && !a.view(&()).dict_has(0, b"key"));
        let reports = a.state().dict_reports();
        assert_eq!((reports[0].hits, reports[0].misses, reports[1].misses), (1, 1, 1));
        assert_eq!((reports[0].name.as_str(), reports[0].entries, reports[0].entries_max), ("plain", 0, 10));
    }

    #[test]
    fn updates_of_two_workers_are_both_counted() {
        let (mut a, mut b) = two_workers(1);
        let mut out = [0; 16];
        assert_eq!(a.view(&()).dict_begin(0, b"key", 0, &mut out), None);
        assert_eq!(b.view(&()).dict_begin(0, b"key", 0, &mut out), None);
        assert!(a.view(&()).dict_commit(0, b"key", Some(b"1")));
        assert!(!b.view(&()).dict_commit(0, b"key", Some(b"1")), "it saw what is no longer so");
        assert_eq!(b.view(&()).dict_begin(0, b"key", DICT_ATTEMPTS_MAX - 1, &mut out), Some(1));
        assert!(b.view(&()).dict_commit(0, b"key", None), "the last attempt always succeeds");
        assert!(!a.view(&()).dict_has(0, b"key"));
    }

    #[test]
    fn a_simulated_run_can_be_repeated() {
        let run = |seed| {
            let (mut a, mut b) = two_workers(seed);
            a.set_now(500);
            (a.view(&()).now_ns(), a.view(&()).random(), b.view(&()).random())
        };
        assert_eq!(run(1), run(1));
        assert_eq!(run(1).0, SIMULATED_EPOCH_NS + 500);
        assert_ne!(run(1), run(2));
        assert_ne!(run(1).1, run(1).2, "workers draw differently");
    }

    #[test]
    fn what_has_expired_is_swept_away() {
        let (mut a, mut b) = two_workers(1);
        a.view(&()).dict_put(1, b"key", b"value");
        b.set_now(1_000_000);
        assert!(!b.view(&()).dict_has(1, b"key"));
        a.set_now(SWEEP_ROUND_NS as u64);
        a.sweep();
        let report = &a.state().dict_reports()[1];
        assert_eq!((report.entries, report.expirations), (0, 1));
    }

    #[test]
    fn lines_are_few_and_one_each() {
        let mut limit = LogLimit::default();
        let admitted = (0..1_000).filter(|_| limit.admit(5).is_some()).count();
        assert_eq!(admitted, LOG_LINES_PER_S_MAX as usize);
        assert_eq!(limit.admit(1_000_000_000), Some(1_000 - u64::from(LOG_LINES_PER_S_MAX)));
        assert_eq!(Line(b"a\r\nb\xff \xc3\xa4").to_string(), "a\\r\\nb\\xff \u{e4}");
    }

    #[test]
    fn addresses_are_mapped_into_ipv6() {
        let bytes = endpoint_bytes(&"10.1.2.3:80".parse().expect("an endpoint"));
        assert_eq!(bytes[..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3, 0, 80]);
        assert_eq!(client_bytes(PeerAddr::Unix), [0; 18]);
    }
}
