//! Steps of each party: the program that `sender.rs`, `receiver.rs`, `injector.rs` and `token.rs` have.

use std::vec::Vec;

use super::{
    At, BUFFER_MAX, Cell, Control, INJECTOR, Leave, ModelRule, Owner, Party, Phase, RECEIVER, RING,
    SENDER_SHIFT, SENDERS, SHARED, Setup, Step, Stored, World,
};

/// States that follow one state.
pub(super) struct Next<'a> {
    pub setup: &'a Setup,
    pub world: &'a World,
    pub found: Vec<World>,
}

impl Next<'_> {
    fn is_kept(&self, rule: ModelRule) -> bool {
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

    pub fn drain_one(&mut self) {
        for who in 0..=SENDERS {
            let buffer = &self.world.buffers[who];
            for (at, stored) in buffer.iter().enumerate() {
                let is_same = buffer[..at].iter().any(|before| before.cell == stored.cell);
                if at == 0 || !(self.setup.is_total || stored.is_release || is_same) {
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
        (epoch + u8::from(self.is_kept(ModelRule::EpochPerReturn)), Phase::Kernel)
    }

    /// Replaces the word of the token, if it is still there.
    fn change(&mut self, who: usize, from: Owner, owner: u8, is_wanted: bool, done: At) {
        let changes = from.changes + u8::from(self.is_kept(ModelRule::NumberedChanges));
        if self.world.owner == from {
            self.go(who, done, |world| {
                world.drain(who);
                world.owner = Owner { owner, is_wanted, changes };
            });
        } else {
            self.go(who, At::Token, |_| {});
        }
    }

    pub fn sender(&mut self, who: usize) -> Step {
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
                    Phase::Frozen if self.is_kept(ModelRule::FrozenSenderWaits) => return Ok(()),
                    Phase::Frozen => At::Kernel,
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
            _ if self.enter(who) || self.token(who) || self.lock(who) => {}
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
                let is_kept = self.is_kept(ModelRule::EntryBarrier);
                self.go(who, At::EnterCheck, |world| {
                    if is_kept {
                        world.drain_all();
                    }
                });
            }
            At::EnterCheck => {
                if self.is_kept(ModelRule::OthersIdle) && self.world.is_other_busy(who) {
                    self.replace(who, entering, self.returned(seen.0), At::Look, At::Look);
                } else {
                    self.go(who, At::EnterWords, |_| {});
                }
            }
            At::EnterWords => self.go(who, At::EnterDone, |world| {
                // These words are read by others behind the exchange that follows.
                world.drain(who);
                world.owner = Owner { owner: who as u8, is_wanted: false, changes: world.owner.changes + 1 };
                world.lock = None;
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
                if self.is_kept(ModelRule::LookAfterMark) {
                    self.go(who, At::Index, |_| {});
                } else if self.world.buffers[who].is_empty() {
                    self.go(who, At::LateMark, |world| world.busy[who] = false);
                }
            }
            At::LateMark => self.store(who, At::Index, Cell::Busy(own), 1, false),
            At::Token if word.owner == own => self.store(who, At::Waiting, Cell::Busy(own), 0, true),
            At::Token if word.owner == SHARED => self.go(who, At::Lock, |_| {}),
            At::Token if word.is_wanted => self.go(who, At::TakeBarrier(word), |_| {}),
            At::Token => {
                let wanted = Owner { is_wanted: true, ..word };
                let changes = word.changes + u8::from(self.is_kept(ModelRule::NumberedChanges));
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
                let is_kept = self.is_kept(ModelRule::TakerBarrier);
                self.go(who, At::TakeWait(wanted), |world| {
                    if is_kept {
                        world.drain_all();
                    }
                });
            }
            At::TakeWait(wanted) if self.world.owner != wanted => self.go(who, At::Token, |_| {}),
            At::TakeWait(wanted) => {
                if !self.world.busy[usize::from(wanted.owner)] || !self.is_kept(ModelRule::WaitForOwner) {
                    self.go(who, At::TakeSwap(wanted), |_| {});
                }
            }
            At::TakeSwap(wanted) => {
                self.change(who, wanted, own, false, At::Index);
                if word == wanted && self.world.shares > 0 {
                    let before = self.found.len();
                    self.change(who, wanted, SHARED, false, At::Token);
                    self.found[before..].iter_mut().for_each(|world| world.shares -= 1);
                }
            }
            _ => return false,
        }
        true
    }

    /// Steps of a sender at the shared lock; returns whether it is at one.
    fn lock(&mut self, who: usize) -> bool {
        let own = who as u8;
        let word = self.world.owner;
        let unlock = |world: &mut World| {
            world.drain(who);
            // A lock that was reset may be another one's.
            world.lock = world.lock.filter(|holder| *holder != own);
        };
        match self.world.parties[who].at {
            At::Lock if self.world.lock.is_some_and(|holder| holder != own) => {}
            At::Lock => self.go(who, At::CheckLock, |world| {
                world.drain(who);
                world.lock = Some(own);
            }),
            At::CheckLock if word.owner != SHARED && self.is_kept(ModelRule::LookAfterLock) => {
                self.go(who, At::Token, unlock);
            }
            At::CheckLock => {
                self.go(who, At::Index, |_| {});
                if self.world.biases > 0 {
                    self.go(who, At::Bias(word), |world| world.biases -= 1);
                }
            }
            At::Bias(seen) if word == seen => self.change(who, seen, own, false, At::BiasUnlock),
            At::Bias(_) => self.go(who, At::Index, |_| {}),
            At::BiasUnlock => self.go(who, At::Index, unlock),
            At::Unlock(leave) => self.go(who, Self::after(leave), unlock),
            _ => return false,
        }
        true
    }

    fn after(leave: Leave) -> At {
        match leave {
            Leave::Look => At::Look,
            Leave::Full(tail) => At::FullUnmark(tail),
            Leave::Unmark => At::Unmark,
        }
    }

    /// Returns where a sender goes that no longer uses the ring.
    fn leave(&self, who: usize, leave: Leave) -> At {
        if self.world.lock == Some(who as u8) { At::Unlock(leave) } else { Self::after(leave) }
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
            At::LookAgain(..) if control != seen && self.is_kept(ModelRule::LookAfterTail) => {
                self.go(who, self.leave(who, Leave::Look), |_| {});
            }
            At::LookAgain(head, tail) if head.wrapping_sub(tail) > RING => {
                return Err("the receiver's index is impossible");
            }
            At::LookAgain(head, tail) if head - tail == RING => {
                self.go(who, self.leave(who, Leave::Full(tail)), |_| {});
            }
            At::FullUnmark(tail) => self.store(who, At::Full(tail), Cell::Busy(who as u8), 0, true),
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
            At::LookAfter(head) if control != seen && self.is_kept(ModelRule::LookAfterPublication) => {
                self.go(who, At::Cut(head, 0), |_| {});
            }
            At::LookAfter(_) => {
                self.go(who, self.leave(who, Leave::Unmark), |world| world.parties[who].count += 1);
            }
            _ => return self.cut(who),
        }
        Ok(())
    }

    pub fn receiver(&mut self) -> Step {
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
                self.store(RECEIVER, At::Cut(tail, byte), Cell::Tail, tail + 1, true);
            }
            At::Cut(_, byte) if control == seen || !self.is_kept(ModelRule::LookAfterRelease) => {
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

    pub fn injector(&mut self) -> Step {
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
        let is_one = self.is_kept(ModelRule::OneCutPerEpoch);
        let (first, second) = if self.is_kept(ModelRule::TailBeforeHead) {
            (Cell::Tail, Cell::Head)
        } else {
            (Cell::Head, Cell::Tail)
        };
        match self.world.parties[who].at {
            At::Cut(index, byte) => match self.world.cut {
                (epoch, _) if epoch != seen.0 => return Err("the cut is of another epoch"),
                (_, Some(cut)) if is_one => return self.use_cut(who, index, byte, cut),
                _ => self.go(who, At::CutBarrier(index, byte), |_| {}),
            },
            At::CutBarrier(index, byte) => {
                let is_kept = self.is_kept(ModelRule::CutBarrier);
                self.go(who, At::CutFirst(index, byte), |world| {
                    if is_kept {
                        world.drain_all();
                    }
                });
            }
            At::CutFirst(index, byte) => {
                let value = self.world.load(who, first);
                self.go(who, At::CutSecond(index, byte, value), |_| {});
            }
            At::CutSecond(index, byte, value) => {
                let other = self.world.load(who, second);
                let cut = if second == Cell::Head { (other, value) } else { (value, other) };
                self.go(who, At::CutSwap(index, byte, cut), |_| {});
            }
            At::CutSwap(index, byte, cut) if !is_one => return self.use_cut(who, index, byte, cut),
            // The exchange succeeds, or finds the cut of another party; either is loaded next.
            At::CutSwap(index, byte, cut) => self.go(who, At::Cut(index, byte), |world| {
                world.drain(who);
                if world.cut == (seen.0, None) {
                    world.cut.1 = Some(cut);
                }
            }),
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
        let leave = |leave| if is_receiver { At::Start } else { self.leave(who, leave) };
        let (refused, accepted) = (leave(Leave::Look), leave(Leave::Unmark));
        if cut == index {
            self.go(who, refused, |_| {});
        } else if cut != index + 1 {
            return Err("the cut is neither before nor after the message");
        } else if is_receiver && !self.world.is_next(byte) {
            return Err("the ring delivers another byte");
        } else {
            self.go(who, accepted, |world| {
                world.parties[who].count += 1;
                if is_receiver {
                    world.deliver(byte);
                }
            });
        }
        Ok(())
    }
}
