//! Every interleaving of a sender, a receiver and an injector for a few bytes, with store buffers.
//! Promises: all reachable states are visited; a byte that is lost, doubled or out of order, or a state from which no
//! party can continue, fails; each rule of the protocol is left out once, and the search must then find a failure.
//! Not here: the code itself, which `tests.rs` interleaves on sockets; loads out of order, which the code excludes by
//! acquire loads. A store leaves its buffer in any order except that a release store waits for all before it, as on
//! AArch64; with `is_total` in the order of the program, as on x86-64.

use std::collections::HashSet;
use std::vec::Vec;

/// Most bytes of a stream.
const BYTES_MAX: usize = 5;
/// Largest ring.
const RING_MAX: usize = 2;
/// Stores that a processor may hold back.
const BUFFER_MAX: usize = 3;

/// Rules of the protocol that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelRule {
    LookAfterTail,
    LookAfterPublication,
    LookAfterRelease,
    TailBeforeHead,
    OneCutPerEpoch,
    FrozenSenderWaits,
    /// The barrier on all cores before a cut.
    Barrier,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    bytes: u8,
    ring: u8,
    /// Times that the receiver offers, and that the injector freezes.
    cycles: u8,
    is_total: bool,
    without: Option<ModelRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Kernel,
    Offer,
    Ring,
    Frozen,
}

/// Words that are stored through a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cell {
    Head,
    Tail,
    Ring(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stored {
    cell: Cell,
    value: u8,
    is_release: bool,
}

/// Position in the program of a party, with its local values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Start,
    /// The sender writes to, or the receiver reads from, the kernel.
    Kernel,
    Enter,
    LoadIndex,
    LookAgain(u8),
    Copy(u8),
    Publish,
    LookAfter(u8),
    /// The cut of the epoch, with the byte that the receiver has copied.
    LoadCut(u8),
    CutBarrier(u8),
    CutFirst(u8),
    CutSecond(u8, u8),
    CutSwap(u8, u8, u8),
    Inject(u8, u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Party {
    at: At,
    /// Bytes sent or received; of the injector, freezes left.
    count: u8,
    /// Epoch and phase that the party has seen.
    seen: (u8, Phase),
}

/// Index of each party.
const SENDER: usize = 0;
const RECEIVER: usize = 1;
const INJECTOR: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    control: (u8, Phase),
    head: u8,
    tail: u8,
    ring_from: u8,
    ring: [u8; RING_MAX],
    /// The cut of the present epoch: head and tail.
    cut: Option<(u8, u8)>,
    kernel: Vec<u8>,
    offers: u8,
    parties: [Party; 3],
    buffers: [Vec<Stored>; 2],
}

type Step = Result<(), &'static str>;

impl World {
    fn new(setup: &Setup) -> Self {
        let party = |count| Party { at: At::Start, count, seen: (0, Phase::Kernel) };
        Self {
            control: (0, Phase::Kernel),
            head: 0,
            tail: 0,
            ring_from: 0,
            ring: [u8::MAX; RING_MAX],
            cut: None,
            kernel: Vec::new(),
            offers: setup.cycles,
            parties: [party(0), party(0), party(setup.cycles)],
            buffers: [Vec::new(), Vec::new()],
        }
    }

    fn write(&mut self, stored: Stored) {
        match stored.cell {
            Cell::Head => self.head = stored.value,
            Cell::Tail => self.tail = stored.value,
            Cell::Ring(at) => self.ring[at as usize] = stored.value,
        }
    }

    /// Loads a word as a party sees it: its own buffered stores first.
    fn load(&self, who: usize, cell: Cell) -> u8 {
        let buffer = self.buffers.get(who).map_or(&[][..], Vec::as_slice);
        if let Some(stored) = buffer.iter().rev().find(|stored| stored.cell == cell) {
            return stored.value;
        }
        match cell {
            Cell::Head => self.head,
            Cell::Tail => self.tail,
            Cell::Ring(at) => self.ring[at as usize],
        }
    }

    fn drain(&mut self, who: usize) {
        let stores: Vec<_> = self.buffers.get_mut(who).map(std::mem::take).unwrap_or_default();
        stores.into_iter().for_each(|stored| self.write(stored));
    }
}

/// States that follow one state.
struct Next<'a> {
    setup: &'a Setup,
    world: &'a World,
    found: Vec<World>,
}

impl Next<'_> {
    fn is_kept(&self, rule: ModelRule) -> bool {
        self.setup.without != Some(rule)
    }

    fn cell(&self, offset: u8) -> Cell {
        Cell::Ring(offset % self.setup.ring)
    }

    /// Adds the state in which a party is somewhere else and `change` has happened.
    fn go(&mut self, who: usize, at: At, change: impl FnOnce(&mut World)) {
        let mut world = self.world.clone();
        world.parties[who].at = at;
        change(&mut world);
        self.found.push(world);
    }

    /// Adds the state after a store; none if the buffer is full.
    fn store(&mut self, who: usize, at: At, stored: Stored) {
        if self.world.buffers[who].len() < BUFFER_MAX {
            self.go(who, at, |world| world.buffers[who].push(stored));
        }
    }

    /// Adds the states in which a buffered store has reached memory.
    fn drain_one(&mut self) {
        for who in [SENDER, RECEIVER] {
            let buffer = &self.world.buffers[who];
            for (at, stored) in buffer.iter().enumerate() {
                let is_same = buffer[..at].iter().any(|before| before.cell == stored.cell);
                if at > 0 && (self.setup.is_total || stored.is_release || is_same) {
                    continue;
                }
                let mut world = self.world.clone();
                let stored = world.buffers[who].remove(at);
                world.write(stored);
                self.found.push(world);
            }
        }
    }

    fn sender(&mut self) -> Step {
        let Party { at, count, seen } = self.world.parties[SENDER];
        let control = self.world.control;
        match at {
            At::Start if count == self.setup.bytes => {}
            At::Start => {
                let next = match control.1 {
                    Phase::Kernel => At::Kernel,
                    Phase::Offer => At::Enter,
                    Phase::Ring => At::LoadIndex,
                    Phase::Frozen if self.is_kept(ModelRule::FrozenSenderWaits) => return Ok(()),
                    Phase::Frozen => At::Kernel,
                };
                self.go(SENDER, next, |world| world.parties[SENDER].seen = control);
            }
            At::Kernel => self.go(SENDER, At::Start, |world| {
                world.kernel.push(count);
                world.parties[SENDER].count += 1;
            }),
            At::Enter if control != seen => self.go(SENDER, At::Start, |_| {}),
            At::Enter => self.go(SENDER, At::Start, |world| {
                // A locked operation; before it, no other party reads these words.
                world.drain(SENDER);
                (world.ring_from, world.head, world.tail, world.cut) = (count, count, count, None);
                world.control.1 = Phase::Ring;
            }),
            At::LoadIndex => {
                let tail = self.world.load(SENDER, Cell::Tail);
                self.go(SENDER, At::LookAgain(tail), |_| {});
            }
            At::LookAgain(tail) => {
                let is_changed = self.is_kept(ModelRule::LookAfterTail) && control != seen;
                let is_full = count.wrapping_sub(tail) >= self.setup.ring;
                self.go(SENDER, if is_changed || is_full { At::Start } else { At::Copy(0) }, |_| {});
            }
            At::Copy(_) => {
                let cell = self.cell(count);
                self.store(SENDER, At::Publish, Stored { cell, value: count, is_release: false });
            }
            At::Publish => {
                let stored = Stored { cell: Cell::Head, value: count + 1, is_release: true };
                self.store(SENDER, At::LookAfter(0), stored);
            }
            At::LookAfter(_) if self.is_kept(ModelRule::LookAfterPublication) && control != seen => {
                self.go(SENDER, At::LoadCut(0), |_| {});
            }
            At::LookAfter(_) => self.go(SENDER, At::Start, |world| world.parties[SENDER].count += 1),
            _ => return self.cut(SENDER),
        }
        Ok(())
    }

    fn receiver(&mut self) -> Step {
        let Party { at, count, seen } = self.world.parties[RECEIVER];
        let control = self.world.control;
        match at {
            At::Start if count == self.setup.bytes => {}
            At::Start => {
                let is_ring = control.1 == Phase::Ring && count >= self.world.ring_from;
                let next = if is_ring { At::LoadIndex } else { At::Kernel };
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
                if first.is_some_and(|byte| byte != count) {
                    return Err("the kernel delivers another byte");
                }
                self.go(RECEIVER, At::Start, |world| {
                    if first.is_some() {
                        world.kernel.remove(0);
                        world.parties[RECEIVER].count += 1;
                    }
                });
            }
            At::LoadIndex => {
                let head = self.world.load(RECEIVER, Cell::Head);
                self.go(RECEIVER, if head > count { At::Copy(0) } else { At::Start }, |_| {});
            }
            At::Copy(_) => {
                let byte = self.world.load(RECEIVER, self.cell(count));
                let stored = Stored { cell: Cell::Tail, value: count + 1, is_release: true };
                self.store(RECEIVER, At::LookAfter(byte), stored);
            }
            At::LookAfter(byte) if self.is_kept(ModelRule::LookAfterRelease) && control != seen => {
                self.go(RECEIVER, At::LoadCut(byte), |_| {});
            }
            At::LookAfter(byte) if byte != count => return Err("the ring delivers another byte"),
            At::LookAfter(_) => self.go(RECEIVER, At::Start, |world| world.parties[RECEIVER].count += 1),
            _ => return self.cut(RECEIVER),
        }
        Ok(())
    }

    fn injector(&mut self) -> Step {
        let Party { at, count, .. } = self.world.parties[INJECTOR];
        match at {
            At::Start if count == 0 => {}
            At::Start => match self.world.control.1 {
                Phase::Ring => self.go(INJECTOR, At::LoadCut(0), |world| world.control.1 = Phase::Frozen),
                Phase::Offer => self.go(INJECTOR, At::Start, |world| {
                    world.control.1 = Phase::Kernel;
                    world.parties[INJECTOR].count -= 1;
                }),
                _ => {}
            },
            At::Inject(offset, end) if offset < end => {
                let byte = self.world.load(INJECTOR, self.cell(offset));
                self.go(INJECTOR, At::Inject(offset + 1, end), |world| world.kernel.push(byte));
            }
            At::Inject(..) => self.go(INJECTOR, At::Start, |world| {
                world.control = (world.control.0 + 1, Phase::Kernel);
                world.parties[INJECTOR].count -= 1;
            }),
            _ => return self.cut(INJECTOR),
        }
        Ok(())
    }

    /// Steps of the agreement on a cut.
    fn cut(&mut self, who: usize) -> Step {
        let (first, second) = if self.is_kept(ModelRule::TailBeforeHead) {
            (Cell::Tail, Cell::Head)
        } else {
            (Cell::Head, Cell::Tail)
        };
        match self.world.parties[who].at {
            At::LoadCut(byte) => match self.world.cut {
                Some(cut) if self.is_kept(ModelRule::OneCutPerEpoch) => return self.use_cut(who, byte, cut),
                _ => self.go(who, At::CutBarrier(byte), |_| {}),
            },
            At::CutBarrier(byte) => {
                let is_kept = self.is_kept(ModelRule::Barrier);
                self.go(who, At::CutFirst(byte), |world| {
                    if is_kept {
                        world.drain(SENDER);
                        world.drain(RECEIVER);
                    }
                });
            }
            At::CutFirst(byte) => {
                let value = self.world.load(who, first);
                self.go(who, At::CutSecond(byte, value), |_| {});
            }
            At::CutSecond(byte, value) => {
                let other = self.world.load(who, second);
                let (head, tail) = if second == Cell::Head { (other, value) } else { (value, other) };
                self.go(who, At::CutSwap(byte, head, tail), |_| {});
            }
            At::CutSwap(byte, head, tail) => {
                if self.is_kept(ModelRule::OneCutPerEpoch) {
                    // The exchange succeeds, or finds the cut of another party; either is loaded next.
                    self.go(who, At::LoadCut(byte), |world| {
                        world.drain(who);
                        world.cut = world.cut.or(Some((head, tail)));
                    });
                } else {
                    return self.use_cut(who, byte, (head, tail));
                }
            }
            at => unreachable!("{at:?} is no step of a cut"),
        }
        Ok(())
    }

    /// Continues a party with the cut of the epoch.
    fn use_cut(&mut self, who: usize, byte: u8, (head, tail): (u8, u8)) -> Step {
        let count = self.world.parties[who].count;
        let cut = match who {
            SENDER => head,
            RECEIVER => tail,
            _ if tail > head || head - tail > self.setup.ring => return Err("the cut is impossible"),
            _ => {
                self.go(who, At::Inject(tail, head), |_| {});
                return Ok(());
            }
        };
        if cut == count {
            self.go(who, At::Start, |_| {});
        } else if cut != count + 1 {
            return Err("the cut is neither before nor after the message");
        } else if who == RECEIVER && byte != count {
            return Err("the ring delivers another byte");
        } else {
            self.go(who, At::Start, |world| world.parties[who].count += 1);
        }
        Ok(())
    }
}

/// Visits every state; returns how many there are.
fn explore(setup: &Setup) -> Result<usize, (&'static str, World)> {
    assert!(setup.bytes as usize <= BYTES_MAX && setup.ring as usize <= RING_MAX);
    let first = World::new(setup);
    let (mut seen, mut open) = (HashSet::from([first.clone()]), std::vec![first]);
    while let Some(world) = open.pop() {
        let mut next = Next { setup, world: &world, found: Vec::new() };
        next.drain_one();
        let steps = next.sender().and_then(|()| next.receiver()).and_then(|()| next.injector());
        let found = next.found;
        if let Err(failure) = steps {
            return Err((failure, world));
        }
        let is_complete = world.parties[..2].iter().all(|party| party.count == setup.bytes);
        if !is_complete && found.iter().all(|next| *next == world) {
            return Err(("no party can continue", world));
        }
        for next in found {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

const FULL: Setup = Setup { bytes: 3, ring: 1, cycles: 1, is_total: false, without: None };

#[test]
fn every_interleaving_delivers_every_byte_once_and_in_order() {
    let is_long = std::env::var_os("FLICK_SHM_LONG").is_some();
    let mut setups = std::vec![
        FULL,
        Setup { bytes: 4, ring: 2, ..FULL },
        Setup { bytes: 4, ring: 2, is_total: true, ..FULL }
    ];
    if is_long {
        setups.push(Setup { bytes: 3, cycles: 2, ..FULL });
        setups.push(Setup { bytes: 5, ring: 2, cycles: 2, ..FULL });
    }
    for setup in setups {
        let states = explore(&setup).unwrap_or_else(|(failure, world)| panic!("{failure}: {world:#?}"));
        std::println!("{states} states of {setup:?}");
    }
}

#[test]
fn without_any_one_rule_a_byte_is_lost_or_wrong() {
    for rule in [
        ModelRule::LookAfterTail,
        ModelRule::LookAfterPublication,
        ModelRule::LookAfterRelease,
        ModelRule::TailBeforeHead,
        ModelRule::OneCutPerEpoch,
        ModelRule::FrozenSenderWaits,
        ModelRule::Barrier,
    ] {
        for is_total in [false, true] {
            let setup = Setup { without: Some(rule), is_total, ..FULL };
            match explore(&setup) {
                Err((failure, _)) => std::println!("without {rule:?}: {failure}"),
                Ok(states) => panic!("nothing fails in {states} states without {rule:?}"),
            }
        }
    }
}
