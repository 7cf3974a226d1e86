//! Runs in which one thread acts at a chosen step of another one: schedules that chance hardly finds. Each is run with
//! a rule and without it.

use core::cell::Cell;

use super::stopped::two_senders;
use super::*;
use crate::sync::AtomicU32;
use crate::token::{Acquired, TokenRule, TokenSteps};

/// Step of the scripted thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Step,
    Pause,
}

/// Steps at which a script acts: it gets the point, and how many of that kind came before.
#[derive(Clone, Copy)]
struct Scripted<'a, const IS_KEPT: bool> {
    script: &'a dyn Fn(Point, u32),
    passed: [&'a Cell<u32>; 2],
}

impl<const IS_KEPT: bool> Scripted<'_, IS_KEPT> {
    fn pass(self, point: Point) {
        let passed = self.passed[usize::from(point == Point::Pause)];
        (self.script)(point, passed.replace(passed.get() + 1));
    }
}

impl<const IS_KEPT: bool> SwitchSteps for Scripted<'_, IS_KEPT> {
    const WITHOUT: Option<SwitchRule> = if IS_KEPT { None } else { Some(SwitchRule::LookAfterWait) };
}

impl<const IS_KEPT: bool> TokenSteps for Scripted<'_, IS_KEPT> {
    const WITHOUT_TOKEN_RULE: Option<TokenRule> = if IS_KEPT { None } else { Some(TokenRule::LookAfterLock) };

    fn step(self) {
        self.pass(Point::Step);
    }

    fn pause(self, _: u32) {
        self.pass(Point::Pause);
    }

    fn sleep(self, _: &AtomicU32, _: u32) {}

    fn wake(self, _: &AtomicU32) {}

    fn now_ns(self) -> u64 {
        1
    }
}

/// Acquires the token of the senders, and releases it.
fn acquire(token: &Token, member: &Member) -> Acquired {
    let call = member.enter(token.end, Fencing::Both).expect("no call");
    let acquired = token.acquire(member, call, PlainSteps);
    token.release(member, acquired, PlainSteps);
    member.leave(call);
    acquired
}

/// A thread finds the lock shared, and locks after another one has become the owner, which is in a call.
fn lock_late<const IS_KEPT: bool>() -> Acquired {
    let (switched, second) = two_senders();
    let token = token(&switched.mapping, 0, false);
    let first = &switched.sending;
    while acquire(&token, first) != Acquired::Locked {
        acquire(&token, &second);
    }
    let script = |point, before| {
        // Behind the looks of `acquire`, and of `acquire_from_others`.
        if (point, before) == (Point::Step, 2) {
            while acquire(&token, first) != Acquired::Owned {}
            let call = first.enter(token.end, Fencing::Both).expect("no call");
            assert_eq!(token.acquire(first, call, PlainSteps), Acquired::Owned);
        }
    };
    let passed = [Cell::new(0), Cell::new(0)];
    let steps = Scripted::<IS_KEPT> { script: &script, passed: passed.each_ref() };
    let call = second.enter(token.end, Fencing::Both).expect("no call");
    token.acquire(&second, call, steps)
}

#[test]
fn a_thread_that_locked_late_was_in_the_ring_beside_the_owner() {
    assert_eq!(lock_late::<true>(), Acquired::Stalled);
    assert_eq!(lock_late::<false>(), Acquired::Locked, "the rule makes the difference");
}

/// A receiver that waits for the token gives way, and the direction goes to the kernel and comes back meanwhile.
fn receive_after_a_wait<const IS_KEPT: bool>() -> Result<SwitchedReceive, PeerFault> {
    let mut switched = Switched::new();
    switched.fill();
    assert_eq!(switched.drain(), b"kernel0123456789");
    let second = switched.members.add_thread().expect("there are few");
    let script = |point, before| match (point, before) {
        (Point::Step, 0) => {
            let wanted = switched.receiver.receive(&second, &mut [0; 8]);
            assert_eq!(wanted, Ok(SwitchedReceive::Stalled), "the owner is in a call");
        }
        (Point::Pause, 0) => {
            let mut injector = switched.injector(7);
            assert_eq!(injector.freeze(None), Freeze::Frozen);
            assert_eq!(injector.next(&mut [0; 8]), Ok(Injection::Done));
            assert_eq!(switched.receiver.offer(&second), Ok(true));
            assert_eq!(switched.send(b"next", true), Ok(SwitchedSend::Sent(4, Wake::NotNeeded)));
        }
        _ => {}
    };
    let passed = [Cell::new(0), Cell::new(0)];
    let steps = Scripted::<IS_KEPT> { script: &script, passed: passed.each_ref() };
    let ring = ring_with(&switched.mapping, steps);
    let receiver = SwitchReceiver::new(ring, token(&switched.mapping, 0, true));
    receiver.receive(&switched.receiving, &mut [0; 8])
}

#[test]
fn a_receiver_that_waited_used_the_ring_of_an_earlier_epoch() {
    assert_eq!(receive_after_a_wait::<true>(), Ok(SwitchedReceive::Received(4, Wake::NotNeeded)));
    assert_eq!(receive_after_a_wait::<false>(), Err(PeerFault::SwitchCut), "the rule makes the difference");
}
