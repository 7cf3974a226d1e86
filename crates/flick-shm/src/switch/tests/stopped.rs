//! Threads that stop in a call, or are interrupted by a signal handler, as a second thread of their end sees it.

use std::process::Command;

use super::*;
use crate::token::Acquired;

/// A direction in the ring, and a second thread of its sending end.
pub(super) fn two_senders() -> (Switched, Member) {
    let mut switched = Switched::new();
    let second = switched.members.add_thread().expect("there are few");
    switched.fill();
    (switched, second)
}

#[test]
fn a_second_thread_takes_the_token_over_from_an_idle_owner() {
    let (mut switched, second) = two_senders();
    assert_eq!(switched.sender.send(&second, b"ab", true), Ok(SwitchedSend::Sent(2, Wake::NotNeeded)));
    assert_eq!(switched.send(b"cd", true), Ok(SwitchedSend::Sent(2, Wake::NotNeeded)));
    assert_eq!(switched.drain(), b"kernel0123456789abcd");
}

#[test]
fn a_thread_that_is_stopped_in_a_send_stalls_no_other_one() {
    let (mut switched, second) = two_senders();
    let token = token(&switched.mapping, 0, false);
    // The first thread stops between its mark and its publication.
    let call = switched.sending.enter(token.end, Fencing::Both).expect("no call");
    assert_eq!(token.acquire(&switched.sending, call, PlainSteps), Acquired::Owned);
    assert_eq!(switched.sender.send(&second, b"second", true), Ok(SwitchedSend::Stalled));
    let mut injector = switched.injector(second.injector_number());
    assert_eq!(injector.freeze(None), Freeze::Frozen);
    let mut bytes = [0; 64];
    assert_eq!(injector.next(&mut bytes), Ok(Injection::Write(10)));
    assert_eq!(switched.write(&bytes[..10]), 10);
    injector.injected(10);
    assert_eq!(injector.next(&mut bytes), Ok(Injection::Done));
    for can_enter in [false, true] {
        assert!(switched.offer(), "the receiver is in no call");
        let result = switched.sender.send(&second, b"second", true);
        if can_enter {
            assert_eq!(result, Ok(SwitchedSend::Sent(6, Wake::NotNeeded)));
        } else {
            assert_eq!(result, Ok(SwitchedSend::Kernel), "the stopped thread may still write to the ring");
            assert_eq!(switched.write(b"second"), 6);
            switched.sender.kernel_sent(&second, 6);
            assert_eq!(injector.freeze(None), Freeze::InKernel);
            switched.sending.leave(call);
        }
    }
    assert_eq!(switched.drain(), b"kernel0123456789secondsecond");
}

#[test]
fn a_signal_handler_that_interrupts_a_send_gets_an_answer() {
    let (mut switched, _second) = two_senders();
    let end = token(&switched.mapping, 0, false).end;
    let call = switched.sending.enter(end, Fencing::Both).expect("no call");
    assert_eq!(switched.send(b"handler", true), Ok(SwitchedSend::Nested));
    assert!(switched.sending.is_in_call());
    switched.sending.leave(call);
    assert_eq!(switched.drain(), b"kernel0123456789");
    assert_eq!(switched.injector(7).freeze(None), Freeze::Frozen);
    assert_eq!(switched.injector(7).next(&mut [0; 8]), Ok(Injection::Done));
    // In the kernel, the handler's bytes follow those of the call that it interrupts, or precede them.
    assert_eq!(switched.send(b"outer", true), Ok(SwitchedSend::Kernel));
    switched.send_by_kernel(b"handler");
    assert_eq!(switched.write(b"outer"), 5);
    switched.sender.kernel_sent(&switched.sending, 5);
    assert_eq!((switched.drain(), switched.sending.is_in_call()), (b"handlerouter".to_vec(), false));
}

#[test]
fn a_receiver_that_sleeps_in_the_kernel_keeps_the_direction_there() {
    let mut switched = Switched::new();
    let second = switched.members.add_thread().expect("there are few");
    let sleeping = switched.receiver.receive(&second, &mut [0; 8]);
    assert_eq!(sleeping, Ok(SwitchedReceive::Kernel { may_sleep: true }));
    assert!(!switched.offer(), "the thread would miss bytes of the ring");
    switched.receiver.kernel_received(&second, 0);
    assert!(switched.offer());
    let looking = switched.receiver.receive(&second, &mut [0; 8]);
    assert_eq!(looking, Ok(SwitchedReceive::Kernel { may_sleep: false }));
    switched.receiver.kernel_received(&second, 0);
    assert_eq!(switched.send(b"ring", true), Ok(SwitchedSend::Sent(4, Wake::NotNeeded)));
    assert_eq!(switched.drain(), b"ring");
}

#[test]
fn bytes_of_a_thread_that_died_in_the_kernel_are_counted_before_the_ring_is_used() {
    let mut switched = Switched::new();
    let second = switched.members.add_thread().expect("there are few");
    // A thread of another process writes to the kernel, and dies before it has counted.
    let dead = members(&switched.mapping);
    dead.join().expect("there are few");
    let thread = dead.add_thread().expect("there are few");
    assert_eq!(switched.sender.send(&thread, b"dead", true), Ok(SwitchedSend::Kernel));
    assert_eq!(switched.write(b"dead"), 4);
    dead.leave();
    assert!(switched.offer());
    assert_eq!(switched.send(b"x", true), Ok(SwitchedSend::Kernel));
    switched.sender.kernel_sent(&switched.sending, 0);
    assert!(switched.sender.is_uncounted());
    assert_eq!(switched.injector(7).freeze(None), Freeze::InKernel);
    assert!(!switched.offer(), "the receiver would not know where the ring begins");
    assert_eq!(switched.send(b"x", true), Ok(SwitchedSend::Kernel));
    assert_eq!(switched.sender.recount(&second, || Some(4)), Ok(false), "another thread sends");
    switched.sender.kernel_sent(&switched.sending, 0);
    assert_eq!(switched.sender.recount(&second, || None), Ok(false));
    assert_eq!(switched.sender.recount(&second, || Some(4)), Ok(true));
    assert!(switched.offer() && !switched.sender.is_uncounted());
    assert_eq!(switched.send(b"ring", true), Ok(SwitchedSend::Sent(4, Wake::NotNeeded)));
    assert_eq!(switched.drain(), b"deadring");
}

#[test]
fn threads_that_take_over_from_each_other_share_a_lock_and_one_gets_the_bias_back() {
    let (switched, second) = two_senders();
    let token = token(&switched.mapping, 0, false);
    let acquire = |member: &Member| {
        let call = member.enter(token.end, Fencing::Both).expect("no call");
        let acquired = token.acquire(member, call, PlainSteps);
        token.release(member, acquired, PlainSteps);
        member.leave(call);
        acquired
    };
    let (first, second) = (&switched.sending, &second);
    let all: Vec<_> = (0..40).map(|at| acquire(if at % 2 == 0 { second } else { first })).collect();
    assert!(all.contains(&Acquired::Locked), "{all:?}");
    assert_eq!(all[39], Acquired::Locked);
    let alone: Vec<_> = (0..100).map(|_| acquire(first)).collect();
    assert_eq!((alone[0], alone[99]), (Acquired::Locked, Acquired::Owned));
}

#[test]
fn an_end_is_open_until_its_last_process_has_closed_it_or_died() {
    let switched = Switched::new();
    let process = switched.sending.process();
    let child = members(&switched.mapping);
    let other = child.join().expect("there are few");
    let sender = &switched.sender;
    assert!(!sender.is_open());
    assert!(sender.hold(process) && sender.hold(other) && sender.hold(other));
    assert!(!sender.close(process));
    assert!(sender.is_open() && sender.hold(process));
    child.leave();
    assert!(sender.close(process), "the other process is gone");
    let all: Vec<_> = core::iter::from_fn(|| {
        let child = members(&switched.mapping);
        let process = child.join().expect("there are few");
        sender.hold(process).then_some(child)
    })
    .collect();
    assert_eq!(all.len(), crate::limits::HOLDERS_MAX);
}

#[test]
fn a_child_of_vfork_changes_no_member_and_no_token() {
    let (mut switched, _second) = two_senders();
    let token = token(&switched.mapping, 0, false);
    let process = switched.members.process();
    // posix_spawn(3), which starts the program, has a child that runs in this memory until it executes.
    for _ in 0..4 {
        let call = switched.sending.enter(token.end, Fencing::Both).expect("no call");
        assert_eq!(token.acquire(&switched.sending, call, PlainSteps), Acquired::Owned);
        assert!(Command::new("true").status().expect("it exists").success());
        assert_eq!(token.acquire(&switched.sending, call, PlainSteps), Acquired::Owned);
        assert!(switched.sending.is_in_call() && switched.members.process() == process);
        switched.sending.leave(call);
        assert_eq!(switched.send(b"ring", true), Ok(SwitchedSend::Sent(4, Wake::NotNeeded)));
    }
    assert_eq!(switched.members.reap(), 1, "this process");
    assert_eq!(switched.drain(), b"kernel0123456789ringringringring");
}
