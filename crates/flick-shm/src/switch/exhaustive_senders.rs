//! Every interleaving of two or three senders with a token, a receiver and an injector for a few bytes, with store
//! buffers.
//! Promises: all reachable states are visited; a byte that is lost, doubled or out of the order of its sender, or a
//! state from which no party can continue, fails; each rule of several senders is left out once, and the search must
//! then find a failure.
//! Not here: the shared lock, which `model.rs` runs; the rules of one sender, which `exhaustive.rs` leaves out; loads
//! out of order, which the code excludes by acquire loads. A store leaves its buffer as in `exhaustive.rs`.

use std::boxed::Box;
use std::collections::HashSet;
use std::vec::Vec;

/// Most bytes of both streams.
const BYTES_MAX: usize = 4;
/// Stores that a processor may hold back.
const BUFFER_MAX: usize = 4;
const RING: u8 = 2;
/// Most senders; all but two are there for the rules of takers.
const SENDERS: usize = 3;
const RECEIVER: usize = SENDERS;
const INJECTOR: usize = SENDERS + 1;
/// Position of the sender in a byte; the low bits count its bytes.
const SENDER_SHIFT: u8 = 4;

/// Rules that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendersRule {
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
    without: Option<SendersRule>,
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
    /// Without its rule: the owner has looked before its mark.
    LateMark,
    Index,
    LookAgain(u8, u8),
    /// The ring was full.
    Full(u8),
    Publish(u8),
    LookAfter(u8),
    Cut(u8, u8),
    CutBarrier(u8, u8),
    CutFirst(u8, u8),
    CutSwap(u8, u8, u8),
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
    kernel_bytes: u8,
    kernel_bytes_at_entry: u8,
    kernel_taken: u8,
    /// Epoch of the last cut, and its indices.
    cut: (u8, Option<(u8, u8)>),
    kernel: Vec<u8>,
    offers: u8,
    reclaims: u8,
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
            kernel_bytes: 0,
            kernel_bytes_at_entry: 0,
            kernel_taken: 0,
            cut: (0, None),
            kernel: Vec::new(),
            offers: setup.offers,
            reclaims: setup.reclaims,
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

/// States that follow one state.
struct Next<'a> {
    setup: &'a Setup,
    world: &'a World,
    found: Vec<World>,
}

impl Next<'_> {
    fn is_kept(&self, rule: SendersRule) -> bool {
        self.setup.without != Some(rule)
    }

    fn go(&mut self, who: usize, at: At, change: impl FnOnce(&mut World)) {
        let mut world = self.world.clone();
        world.parties[who].at = at;
        change(&mut world);
        self.found.push(world);
    }

    fn store(&mut self, who: usize, at: At, cell: Cell, value: u8, is_release: bool) {
        if self.world.buffers[who].len() < BUFFER_MAX {
            self.go(who, at, |world| world.buffers[who].push(Stored { cell, value, is_release }));
        }
    }

    fn drain_one(&mut self) {
        for who in 0..=SENDERS {
            let buffer = &self.world.buffers[who];
            for (at, stored) in buffer.iter().enumerate() {
                let is_same = buffer[..at].iter().any(|before| before.cell == stored.cell);
                if at == 0 || !(stored.is_release || is_same) {
                    let mut world = self.world.clone();
                    let stored = world.buffers[who].remove(at);
                    world.write(stored);
                    self.found.push(world);
                }
            }
        }
    }

    /// Adds the state in which a control word that was seen is replaced; only where it went on if it has changed.
    fn replace(&mut self, who: usize, from: Control, to: Control, done: At, failed: At) {
        if self.world.control == from {
            self.go(who, done, |world| {
                world.drain(who);
                world.control = to;
            });
        } else {
            self.go(who, failed, |_| {});
        }
    }

    fn returned(&self, epoch: u8) -> Control {
        (epoch + u8::from(self.is_kept(SendersRule::EpochPerReturn)), Phase::Kernel)
    }

    /// Replaces the word of the token, if it is still there.
    fn change(&mut self, who: usize, from: Owner, owner: u8, is_wanted: bool, done: At) {
        let changes = from.changes + u8::from(self.is_kept(SendersRule::NumberedChanges));
        if self.world.owner == from {
            self.go(who, done, |world| {
                world.drain(who);
                world.owner = Owner { owner, is_wanted, changes };
            });
        } else {
            self.go(who, At::Token, |_| {});
        }
    }

    fn sender(&mut self, who: usize) -> Step {
        let Party { at, count, .. } = self.world.parties[who];
        let control = self.world.control;
        let own = who as u8;
        match at {
            At::Start if count < self.setup.bytes => self.store(who, At::Look, Cell::Busy(own), 1, false),
            At::Start => {}
            At::Look => {
                let next = match control.1 {
                    Phase::Kernel => At::Kernel,
                    Phase::Offer => At::EnterBarrier,
                    Phase::Enter => At::Look,
                    Phase::Ring => At::Token,
                    Phase::Frozen => return Ok(()),
                };
                if control.1 == Phase::Offer {
                    let entering = (control.0, Phase::Enter);
                    self.go(who, next, |world| {
                        world.drain(who);
                        world.control = entering;
                        world.parties[who].seen = control;
                    });
                    // Only a call that may switch takes an offer.
                    self.go(who, At::Kernel, |_| {});
                } else if control.1 == Phase::Enter {
                    self.replace(who, control, self.returned(control.0), At::Look, At::Look);
                } else {
                    self.go(who, next, |world| world.parties[who].seen = control);
                }
            }
            At::Kernel => {
                self.go(who, At::KernelCount, |world| world.kernel.push(own << SENDER_SHIFT | count));
            }
            At::KernelCount => self.go(who, At::Unmark, |world| {
                world.kernel_bytes += 1;
                world.parties[who].count += 1;
            }),
            At::Unmark => self.store(who, At::Start, Cell::Busy(own), 0, true),
            _ if self.enter(who) || self.token(who) => {}
            _ => return self.ring(who),
        }
        Ok(())
    }

    /// Steps of a sender that takes an offer; returns whether it is at one.
    fn enter(&mut self, who: usize) -> bool {
        let Party { at, seen, .. } = self.world.parties[who];
        let entering = (seen.0, Phase::Enter);
        match at {
            At::EnterBarrier => {
                let is_kept = self.is_kept(SendersRule::EntryBarrier);
                self.go(who, At::EnterCheck, |world| {
                    if is_kept {
                        world.drain_all();
                    }
                });
            }
            At::EnterCheck => {
                if self.is_kept(SendersRule::OthersIdle) && self.world.is_other_busy(who) {
                    self.replace(who, entering, self.returned(seen.0), At::Look, At::Look);
                } else {
                    self.go(who, At::EnterWords, |_| {});
                }
            }
            At::EnterWords => self.go(who, At::EnterDone, |world| {
                // These words are read by others behind the exchange that follows.
                world.drain(who);
                world.owner = Owner { owner: who as u8, is_wanted: false, changes: world.owner.changes + 1 };
                world.kernel_bytes_at_entry = world.kernel_bytes;
                world.tail = world.head;
                world.cut = (seen.0, None);
            }),
            At::EnterDone => self.replace(who, entering, (seen.0, Phase::Ring), At::Look, At::Look),
            _ => return false,
        }
        true
    }

    /// Steps of a sender that acquires the token; returns whether it is at one.
    fn token(&mut self, who: usize) -> bool {
        let own = who as u8;
        let word = self.world.owner;
        match self.world.parties[who].at {
            At::Token if word.owner == own && !word.is_wanted => {
                if self.is_kept(SendersRule::LookAfterMark) {
                    self.go(who, At::Index, |_| {});
                } else if self.world.buffers[who].is_empty() {
                    self.go(who, At::LateMark, |world| world.busy[who] = false);
                }
            }
            At::LateMark => self.store(who, At::Index, Cell::Busy(own), 1, false),
            At::Token if word.owner == own => self.store(who, At::Waiting, Cell::Busy(own), 0, true),
            At::Token if word.is_wanted => self.go(who, At::TakeBarrier(word), |_| {}),
            At::Token => {
                let wanted = Owner { is_wanted: true, ..word };
                let changes = word.changes + u8::from(self.is_kept(SendersRule::NumberedChanges));
                self.change(who, word, word.owner, true, At::TakeBarrier(Owner { changes, ..wanted }));
            }
            At::Waiting if word.owner != own || !word.is_wanted => {
                self.store(who, At::Token, Cell::Busy(own), 1, false);
            }
            At::Waiting if self.world.reclaims > 0 => self.store(who, At::Reclaim, Cell::Busy(own), 1, false),
            At::Waiting => {}
            At::Reclaim if word.owner == own && word.is_wanted => {
                let before = self.found.len();
                self.change(who, word, own, false, At::Index);
                self.found[before..].iter_mut().for_each(|world| world.reclaims -= 1);
            }
            At::Reclaim => self.go(who, At::Token, |_| {}),
            At::TakeBarrier(wanted) => {
                let is_kept = self.is_kept(SendersRule::TakerBarrier);
                self.go(who, At::TakeWait(wanted), |world| {
                    if is_kept {
                        world.drain_all();
                    }
                });
            }
            At::TakeWait(wanted) if self.world.owner != wanted => self.go(who, At::Token, |_| {}),
            At::TakeWait(wanted) => {
                if !self.world.busy[usize::from(wanted.owner)] || !self.is_kept(SendersRule::WaitForOwner) {
                    self.go(who, At::TakeSwap(wanted), |_| {});
                }
            }
            At::TakeSwap(wanted) => self.change(who, wanted, own, false, At::Index),
            _ => return false,
        }
        true
    }

    /// Steps of a sender that has the token.
    fn ring(&mut self, who: usize) -> Step {
        let Party { at, count, seen } = self.world.parties[who];
        let control = self.world.control;
        match at {
            At::Index => {
                let (head, tail) = (self.world.load(who, Cell::Head), self.world.load(who, Cell::Tail));
                self.go(who, At::LookAgain(head, tail), |_| {});
            }
            At::LookAgain(..) if control != seen => self.go(who, At::Look, |_| {}),
            At::LookAgain(head, tail) if head.wrapping_sub(tail) > RING => {
                return Err("the receiver's index is impossible");
            }
            At::LookAgain(head, tail) if head - tail == RING => {
                self.store(who, At::Full(tail), Cell::Busy(who as u8), 0, true);
            }
            At::LookAgain(head, _) => {
                let byte = (who as u8) << SENDER_SHIFT | count;
                self.store(who, At::Publish(head), Cell::Byte(head % RING), byte, false);
            }
            At::Full(tail) => {
                if control != seen || self.world.tail != tail {
                    self.go(who, At::Start, |_| {});
                }
            }
            At::Publish(head) => self.store(who, At::LookAfter(head), Cell::Head, head + 1, true),
            At::LookAfter(head) if control != seen && self.is_kept(SendersRule::LookAfterPublication) => {
                self.go(who, At::Cut(head, 0), |_| {});
            }
            At::LookAfter(_) => self.go(who, At::Unmark, |world| world.parties[who].count += 1),
            _ => return self.cut(who),
        }
        Ok(())
    }

    fn receiver(&mut self) -> Step {
        let Party { at, count, seen } = self.world.parties[RECEIVER];
        let control = self.world.control;
        match at {
            At::Start if count == self.setup.senders * self.setup.bytes => {}
            At::Start => {
                let is_behind = self.world.kernel_taken >= self.world.kernel_bytes_at_entry;
                let next = if control.1 == Phase::Ring && is_behind { At::Index } else { At::Kernel };
                self.go(RECEIVER, next, |world| world.parties[RECEIVER].seen = control);
                if control.1 == Phase::Kernel && self.world.offers > 0 {
                    self.go(RECEIVER, At::Start, |world| {
                        world.drain(RECEIVER);
                        world.control.1 = Phase::Offer;
                        world.offers -= 1;
                    });
                }
            }
            At::Kernel => {
                let first = self.world.kernel.first().copied();
                if first.is_none() && control == seen && self.world.offers == 0 {
                    return Ok(());
                }
                if first.is_some_and(|byte| !self.world.is_next(byte)) {
                    return Err("the kernel delivers another byte");
                }
                self.go(RECEIVER, At::Start, |world| {
                    if let Some(byte) = first {
                        world.kernel.remove(0);
                        world.kernel_taken += 1;
                        world.parties[RECEIVER].count += 1;
                        world.deliver(byte);
                    }
                });
            }
            At::Index => {
                let (tail, head) =
                    (self.world.load(RECEIVER, Cell::Tail), self.world.load(RECEIVER, Cell::Head));
                if head != tail {
                    self.go(RECEIVER, At::LookAgain(tail, head), |_| {});
                } else if control != seen {
                    self.go(RECEIVER, At::Start, |_| {});
                }
            }
            At::LookAgain(tail, head) if head.wrapping_sub(tail) > RING => {
                return Err("the sender's index is impossible");
            }
            At::LookAgain(tail, _) => {
                let byte = self.world.load(RECEIVER, Cell::Byte(tail % RING));
                let before = self.found.len();
                self.store(RECEIVER, At::LookAfter(tail), Cell::Tail, tail + 1, true);
                // The byte is kept where the receiver has no other value.
                self.found[before..].iter_mut().for_each(|world| world.parties[RECEIVER].seen = seen);
                self.found[before..]
                    .iter_mut()
                    .for_each(|world| world.parties[RECEIVER].at = At::Cut(tail, byte));
            }
            At::Cut(_, byte) if control == seen => {
                if !self.world.is_next(byte) {
                    return Err("the ring delivers another byte");
                }
                self.go(RECEIVER, At::Start, |world| {
                    world.parties[RECEIVER].count += 1;
                    world.deliver(byte);
                });
            }
            _ => return self.cut(RECEIVER),
        }
        Ok(())
    }

    fn injector(&mut self) -> Step {
        let Party { at, count, .. } = self.world.parties[INJECTOR];
        let control = self.world.control;
        match at {
            At::Start if count == 0 => {}
            At::Start => match control.1 {
                Phase::Ring => self.go(INJECTOR, At::Cut(0, 0), |world| {
                    world.control.1 = Phase::Frozen;
                    world.parties[INJECTOR].seen = control;
                }),
                Phase::Offer | Phase::Enter => {
                    let returned = self.returned(control.0);
                    self.go(INJECTOR, At::Start, |world| {
                        world.control = returned;
                        world.parties[INJECTOR].count -= 1;
                    });
                }
                _ => {}
            },
            At::Inject(offset, end) if offset < end => {
                let byte = self.world.load(INJECTOR, Cell::Byte(offset % RING));
                self.go(INJECTOR, At::Inject(offset + 1, end), |world| {
                    world.kernel.push(byte);
                    world.kernel_bytes += 1;
                });
            }
            At::Inject(..) => self.go(INJECTOR, At::Start, |world| {
                world.control = (control.0 + 1, Phase::Kernel);
                world.parties[INJECTOR].count -= 1;
            }),
            _ => return self.cut(INJECTOR),
        }
        Ok(())
    }

    /// Steps of the agreement on a cut; `index` is the party's before its message, `byte` what the receiver has copied.
    fn cut(&mut self, who: usize) -> Step {
        let seen = self.world.parties[who].seen;
        match self.world.parties[who].at {
            At::Cut(index, byte) => match self.world.cut {
                (epoch, _) if epoch != seen.0 => return Err("the cut is of another epoch"),
                (_, Some(cut)) => return self.use_cut(who, index, byte, cut),
                _ => self.go(who, At::CutBarrier(index, byte), |_| {}),
            },
            At::CutBarrier(index, byte) => self.go(who, At::CutFirst(index, byte), World::drain_all),
            At::CutFirst(index, byte) => {
                let tail = self.world.load(who, Cell::Tail);
                self.go(who, At::CutSwap(index, byte, tail), |_| {});
            }
            At::CutSwap(index, byte, tail) => {
                let head = self.world.load(who, Cell::Head);
                self.go(who, At::Cut(index, byte), |world| {
                    world.drain(who);
                    if world.cut == (seen.0, None) {
                        world.cut.1 = Some((head, tail));
                    }
                });
            }
            at => unreachable!("{at:?} is no step of a cut"),
        }
        Ok(())
    }

    fn use_cut(&mut self, who: usize, index: u8, byte: u8, (head, tail): (u8, u8)) -> Step {
        if who == INJECTOR {
            if head.wrapping_sub(tail) > RING {
                return Err("the cut is impossible");
            }
            self.go(who, At::Inject(tail, head), |_| {});
            return Ok(());
        }
        let (cut, is_receiver) = if who == RECEIVER { (tail, true) } else { (head, false) };
        if cut == index {
            self.go(who, if is_receiver { At::Start } else { At::Look }, |_| {});
        } else if cut != index + 1 {
            return Err("the cut is neither before nor after the message");
        } else if is_receiver && !self.world.is_next(byte) {
            return Err("the ring delivers another byte");
        } else {
            self.go(who, if is_receiver { At::Start } else { At::Unmark }, |world| {
                world.parties[who].count += 1;
                if is_receiver {
                    world.deliver(byte);
                }
            });
        }
        Ok(())
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

const SHORT: Setup =
    Setup { senders: 2, is_in_ring: false, bytes: 1, offers: 1, freezes: 1, reclaims: 1, without: None };
/// Three senders take the token over from each other.
const TAKERS: Setup = Setup { senders: 3, is_in_ring: true, offers: 0, freezes: 0, ..SHORT };

#[test]
fn two_senders_lose_no_byte_in_any_interleaving() {
    let mut setups = std::vec![SHORT];
    if std::env::var_os("FLICK_SHM_LONG").is_some() {
        setups.push(Setup { offers: 2, ..SHORT });
        setups.push(Setup { bytes: 2, freezes: 0, ..SHORT });
        setups.push(TAKERS);
    }
    for setup in setups {
        let states = explore(&setup).unwrap_or_else(|(failure, world)| panic!("{failure}: {world:#?}"));
        std::println!("{states} states of {setup:?}");
    }
}

#[test]
fn without_any_rule_of_several_senders_a_byte_is_lost_or_wrong() {
    for rule in [
        SendersRule::LookAfterMark,
        SendersRule::WaitForOwner,
        SendersRule::TakerBarrier,
        SendersRule::NumberedChanges,
        SendersRule::OthersIdle,
        SendersRule::EntryBarrier,
        SendersRule::EpochPerReturn,
        SendersRule::LookAfterPublication,
    ] {
        let setup = match rule {
            SendersRule::NumberedChanges | SendersRule::TakerBarrier => TAKERS,
            SendersRule::OthersIdle | SendersRule::EntryBarrier => Setup { freezes: 0, ..SHORT },
            SendersRule::EpochPerReturn => Setup { offers: 2, ..SHORT },
            _ => SHORT,
        };
        let (failure, _) = explore(&Setup { without: Some(rule), ..setup })
            .err()
            .unwrap_or_else(|| panic!("nothing fails without {rule:?}"));
        std::println!("without {rule:?}: {failure}");
    }
}
