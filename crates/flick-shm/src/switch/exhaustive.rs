//! Every interleaving of one to three senders with a token, a receiver and an injector for a few bytes, with store
//! buffers.
//! Promises: all reachable states are visited; a byte that is lost, doubled or out of the order of its sender, or a
//! state from which no party can continue, fails; each rule is left out once, and the search must then find a failure.
//! Not here: the code itself, which `model.rs` and `tests.rs` run; several receivers; loads out of order, which the
//! code excludes by acquire loads. A store leaves its buffer in any order except that a release store waits for all
//! before it, as on AArch64; with `is_total` in the order of the program, as on x86-64.

mod program;

use std::boxed::Box;
use std::collections::HashSet;
use std::vec::Vec;

use program::Next;

/// Most bytes of both streams.
const BYTES_MAX: usize = 4;
/// Stores that a processor may hold back.
const BUFFER_MAX: usize = 4;
const RING: u8 = 2;
/// Most senders; all but two are there for the rules of takers.
const SENDERS: usize = 3;
const RECEIVER: usize = SENDERS;
const INJECTOR: usize = SENDERS + 1;
/// Owner of a token whose senders share the lock.
const SHARED: u8 = SENDERS as u8;
/// Position of the sender in a byte; the low bits count its bytes.
const SENDER_SHIFT: u8 = 4;

/// Rules that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelRule {
    /// The owner looks at the word after its mark.
    LookAfterMark,
    /// A taker waits until the owner's mark is gone.
    WaitForOwner,
    /// A taker executes a barrier before it looks for the mark.
    TakerBarrier,
    /// Each change of the word has a number.
    NumberedChanges,
    /// A sender enters the ring only while the other one is in no call.
    OthersIdle,
    /// It executes a barrier before it looks for calls.
    EntryBarrier,
    /// Each return to the kernel begins an epoch.
    EpochPerReturn,
    /// A sender that has published asks the cut of a frozen ring.
    LookAfterPublication,
    /// A sender looks at the control word after it has loaded the receiver's index.
    LookAfterTail,
    /// A receiver that has released asks the cut of a frozen ring.
    LookAfterRelease,
    /// A cut reads the receiver's index before the sender's.
    TailBeforeHead,
    OneCutPerEpoch,
    /// The barrier on all cores before a cut.
    CutBarrier,
    FrozenSenderWaits,
    /// A sender that has locked looks whether the lock is still the one that counts.
    LookAfterLock,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    senders: u8,
    /// Whether the direction begins in the ring.
    is_in_ring: bool,
    /// Bytes of each sender.
    bytes: u8,
    /// Times that the receiver offers.
    offers: u8,
    /// Times that the injector freezes or withdraws.
    freezes: u8,
    /// Times that an owner takes a token back that another sender wants.
    reclaims: u8,
    /// Times that a taker makes the token a shared lock, and that one that has locked owns the token again.
    shares: u8,
    is_total: bool,
    without: Option<ModelRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Kernel,
    Offer,
    Enter,
    Ring,
    Frozen,
}

type Control = (u8, Phase);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cell {
    Head,
    Tail,
    Byte(u8),
    Busy(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stored {
    cell: Cell,
    value: u8,
    is_release: bool,
}

/// The word of the token: owner, whether it is wanted, number of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    owner: u8,
    is_wanted: bool,
    changes: u8,
}

/// Step that follows the use of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Leave {
    /// The state has changed.
    Look,
    /// The ring was full.
    Full(u8),
    /// The byte is sent.
    Unmark,
}

/// Position in the program of a party, with its local values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Start,
    Look,
    Kernel,
    KernelCount,
    EnterBarrier,
    EnterCheck,
    EnterWords,
    EnterDone,
    Token,
    /// The owner has given way.
    Waiting,
    Reclaim,
    TakeBarrier(Owner),
    TakeWait(Owner),
    TakeSwap(Owner),
    Lock,
    CheckLock,
    Bias(Owner),
    BiasUnlock,
    Unlock(Leave),
    /// Without its rule: the owner has looked before its mark.
    LateMark,
    Index,
    LookAgain(u8, u8),
    FullUnmark(u8),
    /// The ring was full.
    Full(u8),
    Publish(u8),
    LookAfter(u8),
    Cut(u8, u8),
    CutBarrier(u8, u8),
    CutFirst(u8, u8),
    CutSecond(u8, u8, u8),
    CutSwap(u8, u8, (u8, u8)),
    Unmark,
    Inject(u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Party {
    at: At,
    /// Bytes sent or received; of the injector, freezes left.
    count: u8,
    seen: Control,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    control: Control,
    head: u8,
    tail: u8,
    ring: [u8; RING as usize],
    busy: [bool; SENDERS],
    owner: Owner,
    lock: Option<u8>,
    kernel_bytes: u8,
    kernel_bytes_at_entry: u8,
    kernel_taken: u8,
    /// Epoch of the last cut, and its indices.
    cut: (u8, Option<(u8, u8)>),
    kernel: Vec<u8>,
    offers: u8,
    reclaims: u8,
    shares: u8,
    biases: u8,
    /// By sender: bytes received.
    received: [u8; SENDERS],
    parties: [Party; SENDERS + 2],
    buffers: [Vec<Stored>; SENDERS + 1],
}

type Step = Result<(), &'static str>;

impl World {
    fn new(setup: &Setup) -> Self {
        let party = |count| Party { at: At::Start, count, seen: (0, Phase::Kernel) };
        Self {
            control: (0, if setup.is_in_ring { Phase::Ring } else { Phase::Kernel }),
            head: 0,
            tail: 0,
            ring: [u8::MAX; RING as usize],
            busy: [false; SENDERS],
            owner: Owner { owner: 0, is_wanted: false, changes: 0 },
            lock: None,
            kernel_bytes: 0,
            kernel_bytes_at_entry: 0,
            kernel_taken: 0,
            cut: (0, None),
            kernel: Vec::new(),
            offers: setup.offers,
            reclaims: setup.reclaims,
            shares: setup.shares,
            biases: setup.shares,
            received: [0; SENDERS],
            parties: [party(0), party(0), party(0), party(0), party(setup.freezes)],
            buffers: [const { Vec::new() }; SENDERS + 1],
        }
    }

    fn write(&mut self, stored: Stored) {
        match stored.cell {
            Cell::Head => self.head = stored.value,
            Cell::Tail => self.tail = stored.value,
            Cell::Byte(at) => self.ring[at as usize] = stored.value,
            Cell::Busy(who) => self.busy[who as usize] = stored.value != 0,
        }
    }

    fn load(&self, who: usize, cell: Cell) -> u8 {
        let buffer = self.buffers.get(who).map_or(&[][..], Vec::as_slice);
        if let Some(stored) = buffer.iter().rev().find(|stored| stored.cell == cell) {
            return stored.value;
        }
        match cell {
            Cell::Head => self.head,
            Cell::Tail => self.tail,
            Cell::Byte(at) => self.ring[at as usize],
            Cell::Busy(who) => u8::from(self.busy[who as usize]),
        }
    }

    fn drain(&mut self, who: usize) {
        let stores: Vec<_> = self.buffers.get_mut(who).map(std::mem::take).unwrap_or_default();
        stores.into_iter().for_each(|stored| self.write(stored));
    }

    fn drain_all(&mut self) {
        (0..=SENDERS).for_each(|who| self.drain(who));
    }

    /// Takes a byte as the next one of its sender.
    fn deliver(&mut self, byte: u8) {
        self.received[usize::from(byte >> SENDER_SHIFT)] += 1;
    }

    fn is_other_busy(&self, who: usize) -> bool {
        (0..SENDERS).any(|other| other != who && self.busy[other])
    }

    fn is_next(&self, byte: u8) -> bool {
        let received = self.received.get(usize::from(byte >> SENDER_SHIFT));
        received.is_some_and(|count| *count == byte & ((1 << SENDER_SHIFT) - 1))
    }
}

/// Visits every state; returns how many there are.
fn explore(setup: &Setup) -> Result<usize, (&'static str, Box<World>)> {
    assert!((setup.senders * setup.bytes) as usize <= BYTES_MAX);
    let senders = usize::from(setup.senders);
    let first = World::new(setup);
    let (mut seen, mut open) = (HashSet::from([first.clone()]), std::vec![first]);
    while let Some(world) = open.pop() {
        let mut next = Next { setup, world: &world, found: Vec::new() };
        next.drain_one();
        let steps = (0..senders).try_for_each(|who| next.sender(who));
        let steps = steps.and_then(|()| next.receiver()).and_then(|()| next.injector());
        let found = next.found;
        if let Err(failure) = steps {
            return Err((failure, Box::new(world)));
        }
        let is_complete = world.parties[RECEIVER].count == setup.senders * setup.bytes
            && world.parties[..senders].iter().all(|party| party.count == setup.bytes);
        if !is_complete && found.iter().all(|next| *next == world) {
            return Err(("no party can continue", Box::new(world)));
        }
        for next in found {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

const SHORT: Setup = Setup {
    senders: 2,
    is_in_ring: false,
    bytes: 1,
    offers: 1,
    freezes: 1,
    reclaims: 1,
    shares: 0,
    is_total: false,
    without: None,
};
/// Three senders take the token over from each other.
const TAKERS: Setup = Setup { senders: 3, is_in_ring: true, offers: 0, freezes: 0, ..SHORT };
/// Two senders share the lock.
const SHARING: Setup = Setup { is_in_ring: true, offers: 0, reclaims: 0, shares: 1, ..SHORT };
/// One sender, whose ring wraps.
const ALONE: Setup = Setup { senders: 1, bytes: 4, reclaims: 0, ..SHORT };

#[test]
fn no_byte_is_lost_in_any_interleaving() {
    let mut setups = std::vec![SHORT, SHARING, ALONE, Setup { is_total: true, ..ALONE }];
    if std::env::var_os("FLICK_SHM_LONG").is_some() {
        setups.push(Setup { offers: 2, ..SHORT });
        setups.push(Setup { bytes: 2, freezes: 0, ..SHORT });
        setups.push(TAKERS);
        setups.push(Setup { reclaims: 1, offers: 1, shares: 2, ..SHARING });
        setups.push(Setup { offers: 2, freezes: 2, ..ALONE });
    }
    for setup in setups {
        let states = explore(&setup).unwrap_or_else(|(failure, world)| panic!("{failure}: {world:#?}"));
        std::println!("{states} states of {setup:?}");
    }
}

/// Searches without one rule, and expects a failure.
fn check_without(rule: ModelRule, setup: &Setup) {
    let (failure, _) = explore(&Setup { without: Some(rule), ..*setup })
        .err()
        .unwrap_or_else(|| panic!("nothing fails without {rule:?}"));
    std::println!("without {rule:?}: {failure}");
}

#[test]
fn without_any_rule_of_several_senders_a_byte_is_lost_or_wrong() {
    check_without(ModelRule::LookAfterMark, &SHORT);
    check_without(ModelRule::WaitForOwner, &SHORT);
    check_without(ModelRule::TakerBarrier, &TAKERS);
    check_without(ModelRule::NumberedChanges, &TAKERS);
    check_without(ModelRule::OthersIdle, &Setup { freezes: 0, ..SHORT });
    check_without(ModelRule::EntryBarrier, &Setup { freezes: 0, ..SHORT });
    check_without(ModelRule::EpochPerReturn, &Setup { offers: 2, ..SHORT });
    check_without(ModelRule::LookAfterLock, &SHARING);
}

#[test]
fn without_any_rule_of_the_cut_a_byte_is_lost_or_wrong() {
    for rule in [
        ModelRule::LookAfterTail,
        ModelRule::LookAfterPublication,
        ModelRule::LookAfterRelease,
        ModelRule::TailBeforeHead,
        ModelRule::OneCutPerEpoch,
        ModelRule::CutBarrier,
        ModelRule::FrozenSenderWaits,
    ] {
        check_without(rule, &ALONE);
        check_without(rule, &Setup { is_total: true, ..ALONE });
    }
}
