//! All interleavings of a sender and a receiver that enter the ring and leave it at any step, and of the sender's death
//! at any step. A call may begin with the state and the other end's index as an earlier call has seen them (`fast.rs`).
//! Barriers are taken for what they promise: steps take effect in their order.
//! Without each of five rules a byte is wrong: see [`Rule`].

use std::collections::HashSet;

/// A rule that a run leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    None,
    /// The ring is entered only while the kernel's pipe is empty.
    EmptyPipe,
    /// The state is *entering* until the last write through the kernel is made.
    Entering,
    /// The receiver reads the kernel's pipe first.
    KernelFirst,
    /// The receiver asks the cut if the state has changed.
    Cut,
    /// A receiver that takes over knows what is left of the last write.
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Look,
    KernelCall,
    Empty,
    Words,
    Enter,
    LastWrite,
    Entered,
    Capacity,
    LookAgain,
    Publish,
    Judge,
    Cut(u8),
    Freeze,
    Note,
    BackCut(u8),
    Inject,
    Thaw,
    Refuse,
    Count,
    Copy,
    TakeOver,
    /// The first return of a pipe's sender, before the receiver has looked at the ring: see `docs/limitations.md`.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Mode {
    Kernel,
    Entering,
    Ring,
    FrozenBySender,
    FrozenByReceiver,
}

type Word = (Mode, u8);

/// A change of the words and of one end.
type Change<'a> = &'a dyn Fn(&mut Words, &mut End);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Words {
    ctl: Word,
    base: u8,
    head: u8,
    tail: (u8, u8),
    cut: (u8, Option<(u8, u8)>),
    pipe: Vec<u8>,
    ring: [u8; 4],
    before: Option<(u8, u8)>,
    is_dead: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct End {
    at: At,
    /// Bytes that it has sent or received: the next byte's value.
    bytes: u8,
    index: u8,
    seen: Word,
    /// The word in which its last call has used the ring, and the other end's index as it has last seen it.
    fast: Word,
    known: u8,
    /// It goes the long way.
    has_looked: bool,
    cut: (u8, u8),
    copied: u8,
    /// Of the receiver: whether its index is the sender's; the epoch in which it has found the pipe empty.
    is_counted: bool,
    drained: u8,
    enters: u8,
    backs: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    words: Words,
    sender: End,
    receiver: End,
}

const CAPACITY: u8 = 2;
const PIPE: usize = CAPACITY as usize + 1;

impl Words {
    fn tail(&self, epoch: u8) -> u8 {
        if self.tail.0 == epoch { self.tail.1 } else { self.base }
    }

    fn inject(&mut self, (tail, head): (u8, u8), done: u8) {
        let bytes = (tail + done..head.max(tail + done)).map(|index| self.ring[usize::from(index % 4)]);
        self.pipe.extend(bytes.collect::<Vec<u8>>());
        assert!(self.pipe.len() <= PIPE, "the pipe has no capacity");
    }

    /// One step of a decision about the cut; returns whether it is decided, with the cut.
    fn decide(&mut self, end: &mut End, step: u8) -> Option<Option<(u8, u8)>> {
        let epoch = end.seen.1;
        let decided = (self.cut.0 == epoch).then_some(self.cut.1);
        match (decided, step) {
            (None, _) => return Some(None),
            (Some(Some(cut)), _) => return Some(Some(cut)),
            (_, 0) => end.cut.0 = self.tail(epoch),
            (_, 1) => end.cut.1 = self.head,
            _ => {
                self.cut.1 = Some(end.cut);
                return Some(Some(end.cut));
            }
        }
        None
    }
}

/// The states that one step of the sender leads to.
fn sender(world: &World, left_out: Rule, bytes: u8) -> Vec<World> {
    let mut next = Vec::new();
    let (words, own) = (&world.words, &world.sender);
    let mut go = |change: &dyn Fn(&mut Words, &mut End)| {
        let mut world = world.clone();
        change(&mut world.words, &mut world.sender);
        next.push(world);
    };
    let is_same = words.ctl == own.seen;
    match own.at {
        At::Look if own.bytes == bytes => {}
        At::Look => match words.ctl.0 {
            _ if own.fast.0 == Mode::Ring && !own.has_looked => {
                // The short way, or not.
                go(&|_, own| own.has_looked = true);
                if own.index - own.known < CAPACITY {
                    go(&|_, own| (own.at, own.seen) = (At::LookAgain, own.fast));
                }
            }
            Mode::Kernel => {
                go(&|words, own| (own.at, own.seen) = (At::KernelCall, words.ctl));
                if own.enters > 0 {
                    go(&|words, own| (own.at, own.seen, own.enters) = (At::Empty, words.ctl, own.enters - 1));
                }
            }
            Mode::Ring => {
                go(&|words, own| (own.at, own.seen) = (At::Capacity, words.ctl));
                if own.backs > 0 {
                    go(&|words, own| (own.at, own.seen, own.backs) = (At::Freeze, words.ctl, own.backs - 1));
                }
            }
            _ => {}
        },
        At::KernelCall if words.pipe.len() < PIPE => go(&|words, own| {
            words.pipe.push(own.bytes);
            (own.at, own.bytes, own.index) = (At::Look, own.bytes + 1, own.index + 1);
        }),
        At::Empty | At::Words | At::Enter | At::LastWrite | At::Entered => entering(world, left_out, &mut go),
        At::Capacity => {
            if own.index - words.tail(own.seen.1) < CAPACITY {
                go(&|words, own| (own.at, own.known) = (At::LookAgain, words.tail(own.seen.1)));
            } else {
                if own.backs > 0 {
                    go(&|_, own| (own.at, own.backs) = (At::Freeze, own.backs - 1));
                }
                if !is_same {
                    go(&|_, own| own.at = At::Look);
                }
            }
        }
        At::LookAgain => go(&|words, own| {
            own.at = if words.ctl == own.seen { At::Publish } else { At::Look };
            own.has_looked = true;
            if words.ctl == own.seen {
                words.ring[usize::from(own.index % 4)] = own.bytes;
            }
        }),
        At::Publish => go(&|words, own| (words.head, own.at) = (own.index + 1, At::Judge)),
        At::Judge if is_same => go(&|_, own| sent(own)),
        At::Judge => go(&|_, own| own.at = At::Cut(0)),
        At::Cut(step) => go(&|words, own| match words.decide(own, step) {
            Some(cut) if cut.is_none_or(|cut| cut.1 == own.index + 1) => sent(own),
            Some(_) => own.at = At::Look,
            None => own.at = At::Cut(step + 1),
        }),
        _ => back(own, &mut go, Mode::FrozenBySender, is_same),
    }
    next
}

/// The sender's way into the ring.
fn entering(world: &World, left_out: Rule, go: &mut dyn FnMut(Change<'_>)) {
    let (words, own) = (&world.words, &world.sender);
    let is_same = words.ctl == own.seen;
    match own.at {
        At::Empty => {
            let enters = words.pipe.is_empty() || left_out == Rule::EmptyPipe;
            go(&|_, own| own.at = if enters { At::Words } else { At::KernelCall });
        }
        At::Words => go(&|words, own| {
            let (epoch, base) = (own.seen.1 + 1, own.index + 1);
            (words.base, words.head, words.tail, words.cut) = (base, base, (epoch, base), (epoch, None));
            own.at = At::Enter;
        }),
        At::Enter => go(&|words, own| {
            let mode = if left_out == Rule::Entering { Mode::Ring } else { Mode::Entering };
            own.at = if is_same { At::LastWrite } else { At::KernelCall };
            if is_same {
                words.ctl = (mode, own.seen.1 + 1);
                own.seen = (Mode::Entering, own.seen.1 + 1);
            }
        }),
        At::LastWrite if words.pipe.len() < PIPE => go(&|words, own| {
            words.pipe.push(own.bytes);
            (own.at, own.bytes, own.index) = (At::Entered, own.bytes + 1, own.index + 1);
        }),
        At::Entered => go(&|words, own| {
            if is_same {
                words.ctl.0 = Mode::Ring;
            }
            own.at = At::Look;
        }),
        _ => {}
    }
}

fn sent(own: &mut End) {
    (own.fast, own.has_looked) = (own.seen, false);
    (own.at, own.bytes, own.index) = (At::Look, own.bytes + 1, own.index + 1);
}

/// The way back, of either end.
fn back(own: &End, go: &mut dyn FnMut(Change<'_>), mode: Mode, is_same: bool) {
    match own.at {
        At::Freeze => go(&|words, own| {
            own.at = if is_same { At::Note } else { At::Look };
            if is_same {
                words.ctl.0 = mode;
            }
        }),
        At::Note => go(&|words, own| {
            (words.before, own.at) = (Some((own.seen.1, words.pipe.len() as u8)), At::BackCut(0));
        }),
        At::BackCut(step) => go(&|words, own| match words.decide(own, step) {
            Some(cut) => (own.at, own.cut) = (At::Inject, cut.expect("the epoch is this one")),
            None => own.at = At::BackCut(step + 1),
        }),
        At::Inject => go(&|words, own| {
            words.inject(own.cut, 0);
            own.at = At::Thaw;
        }),
        At::Thaw => go(&|words, own| (words.ctl.0, own.at) = (Mode::Kernel, At::Look)),
        _ => {}
    }
}

/// The states that one step of the receiver leads to.
fn receiver(world: &World, left_out: Rule, bytes: u8) -> Vec<World> {
    let mut next = Vec::new();
    let (words, own) = (&world.words, &world.receiver);
    let mut go = |change: &dyn Fn(&mut Words, &mut End)| {
        let mut world = world.clone();
        change(&mut world.words, &mut world.receiver);
        next.push(world);
    };
    let (is_same, is_dead) = (words.ctl == own.seen, words.is_dead);
    match own.at {
        At::Look if own.bytes == bytes => {}
        At::Look => match words.ctl.0 {
            _ if own.fast.0 == Mode::Ring && !own.has_looked => {
                go(&|_, own| own.has_looked = true);
                if own.known != own.index {
                    go(&|_, own| (own.at, own.seen) = (At::LookAgain, own.fast));
                }
            }
            Mode::Kernel => go(&|_, own| (own.at, own.drained) = (At::KernelCall, 0)),
            Mode::Entering if !words.pipe.is_empty() => go(&|_, own| own.at = At::KernelCall),
            Mode::Entering if own.enters > 0 || is_dead => go(&|words, own| {
                (own.at, own.seen, own.enters) = (At::Refuse, words.ctl, own.enters.saturating_sub(1));
            }),
            Mode::Ring => go(&|words, own| (own.at, own.seen) = (At::Count, words.ctl)),
            Mode::FrozenBySender if is_dead => go(&|words, own| {
                words.ctl.0 = Mode::FrozenByReceiver;
                (own.at, own.seen) = (At::TakeOver, words.ctl);
            }),
            _ => {}
        },
        At::Refuse => go(&|words, own| {
            own.at = if is_same { At::KernelCall } else { At::Look };
            if is_same {
                words.ctl.0 = Mode::Kernel;
            }
        }),
        At::KernelCall if !words.pipe.is_empty() => go(&|words, own| {
            let byte = words.pipe.remove(0);
            assert_eq!(byte, own.bytes, "from the kernel");
            (own.at, own.bytes, own.index) = (At::Look, own.bytes + 1, own.index + 1);
        }),
        At::Count | At::Capacity => before_reading(world, left_out, &mut go),
        At::LookAgain => go(&|_, own| {
            (own.at, own.has_looked) = (if is_same { At::Copy } else { At::Look }, true);
        }),
        At::Copy => {
            go(&|words, own| (own.at, own.copied) = (At::Publish, words.ring[usize::from(own.index % 4)]))
        }
        At::Publish => go(&|words, own| (words.tail, own.at) = ((own.seen.1, own.index + 1), At::Judge)),
        At::Judge if is_same || left_out == Rule::Cut => go(&|_, own| received(own)),
        At::Judge => go(&|_, own| own.at = At::Cut(0)),
        At::Cut(step) => go(&|words, own| match words.decide(own, step) {
            Some(cut) if cut.is_none_or(|cut| cut.0 == own.index + 1) => received(own),
            Some(_) => own.at = At::Look,
            None => own.at = At::Cut(step + 1),
        }),
        At::TakeOver => go(&|words, own| take_over(words, own, left_out)),
        _ => back(own, &mut go, Mode::FrozenByReceiver, is_same),
    }
    next
}

/// The receiver's looks before it reads from the ring.
fn before_reading(world: &World, left_out: Rule, go: &mut dyn FnMut(Change<'_>)) {
    let (words, own) = (&world.words, &world.receiver);
    let (is_same, is_dead) = (words.ctl == own.seen, words.is_dead);
    match own.at {
        At::Count if own.drained == own.seen.1 => go(&|_, own| own.at = At::Capacity),
        At::Count if !is_same => go(&|_, own| own.at = At::Look),
        At::Count => go(&|words, own| {
            let left = words.pipe.len() as u8;
            let is_drained = left == 0 || left_out == Rule::KernelFirst;
            (own.index, own.is_counted) = (words.base - if is_drained { 0 } else { left }, true);
            (own.at, own.drained) =
                if is_drained { (At::Capacity, own.seen.1) } else { (At::KernelCall, own.drained) };
        }),
        At::Capacity => {
            let is_ready = words.head != own.index;
            if is_ready {
                go(&|words, own| (own.at, own.known) = (At::LookAgain, words.head));
            } else if !is_same {
                go(&|_, own| own.at = At::Look);
            }
            if own.backs > 0 || is_dead && !is_ready {
                go(&|_, own| (own.at, own.backs) = (At::Freeze, own.backs.saturating_sub(1)));
            }
        }
        _ => {}
    }
}

fn received(own: &mut End) {
    assert_eq!(own.copied, own.bytes, "from the ring");
    (own.fast, own.has_looked) = (own.seen, false);
    (own.at, own.bytes, own.index, own.copied) = (At::Look, own.bytes + 1, own.index + 1, 0);
}

fn take_over(words: &mut Words, own: &mut End, left_out: Rule) {
    let unread = words.pipe.len() as u8;
    let before = words.before.filter(|before| before.0 == own.seen.1).map(|before| before.1);
    let done = match before {
        None => 0,
        Some(before) if left_out == Rule::Left => unread.saturating_sub(before),
        Some(_) if own.is_counted => unread - words.base.saturating_sub(own.index),
        Some(_) => {
            own.at = At::Unknown;
            return;
        }
    };
    let cut = words.cut.1.unwrap_or((words.tail(own.seen.1), words.head));
    words.inject(cut, done);
    own.at = At::Thaw;
}

/// Goes through all states; returns how many there are.
fn explore(bytes: u8, enters: u8, backs: u8, left_out: Rule) -> usize {
    let end = End {
        at: At::Look,
        bytes: 0,
        index: 0,
        seen: (Mode::Kernel, 0),
        fast: (Mode::Kernel, 0),
        known: 0,
        has_looked: false,
        cut: (0, 0),
        copied: 0,
        is_counted: false,
        drained: 0,
        enters,
        backs,
    };
    let words = Words {
        ctl: (Mode::Kernel, 0),
        base: 0,
        head: 0,
        tail: (0, 0),
        cut: (0, None),
        pipe: Vec::new(),
        ring: [0; 4],
        before: None,
        is_dead: false,
    };
    let receiver_end = End { enters: 1, ..end.clone() };
    let start = World { words, sender: end, receiver: receiver_end };
    let (mut known, mut open) = (HashSet::from([start.clone()]), vec![start]);
    while let Some(world) = open.pop() {
        let mut next = receiver(&world, left_out, bytes);
        if world.words.is_dead {
            if next.is_empty() {
                check_end(&world, bytes);
            }
        } else {
            next.extend(sender(&world, left_out, bytes));
            let is_over = world.sender.bytes == bytes && world.receiver.bytes == bytes;
            assert!(is_over || !next.is_empty(), "both ends wait: {world:?}");
            let mut dead = world.clone();
            dead.words.is_dead = true;
            next.push(dead);
        }
        for world in next {
            if known.insert(world.clone()) {
                open.push(world);
            }
        }
    }
    known.len()
}

/// The sender is dead and the receiver is at the end: it has what was sent, and perhaps what was being sent.
fn check_end(world: &World, bytes: u8) {
    let World { words, sender, receiver } = world;
    if receiver.at == At::Unknown {
        return;
    }
    let is_at_end = receiver.bytes == bytes || receiver.at == At::KernelCall && words.pipe.is_empty();
    assert!(is_at_end, "the receiver waits for a dead sender: {world:?}");
    assert!((sender.bytes..=sender.bytes + 1).contains(&receiver.bytes), "bytes are lost: {world:?}");
}

#[test]
fn no_interleaving_loses_or_doubles_a_byte() {
    let states = explore(3, 2, 1, Rule::None);
    assert!(states > 10_000, "{states} states");
}

#[test]
fn without_each_rule_a_byte_is_wrong() {
    for rule in [Rule::EmptyPipe, Rule::Entering, Rule::KernelFirst, Rule::Cut, Rule::Left] {
        let outcome = std::panic::catch_unwind(|| explore(3, 2, 1, rule));
        assert!(outcome.is_err(), "rule {} is not needed", rule as u8);
    }
}
