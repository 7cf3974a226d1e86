//! Calls of the platform by one activation.

use std::sync::atomic::Ordering;

use flick_abi::limits::OUT_BYTES_MAX;
use flick_abi::{BytesRef, Host, HostCall, Region};

use super::activation::{Activation, Registers};
use crate::data::Value;
use crate::semantics;

impl Activation<'_, '_> {
    /// Calls the platform and gives its answer, if the call has one.
    pub(super) fn host(
        &mut self,
        registers: &Registers,
        call: HostCall,
        args: &[Value],
        max_bytes: u32,
    ) -> Option<u64> {
        let word = |index: usize| registers.get(args[index]);
        let channel = |index: usize| semantics::chan_index(word(index));
        let element = |index: usize| semantics::chan_element(word(index));
        // Copied, so that the platform may write into the output meanwhile.
        let bytes = |index: usize| self.bytes(registers.get(args[index])).to_vec();
        Some(match call {
            HostCall::Now => self.call.host.now_ns() as u64,
            HostCall::Random => self.call.host.random(),
            HostCall::CounterGet(counter) => self.call.host.counter_get(counter) as u64,
            HostCall::DictLen(dict) => self.call.host.dict_len(dict) as u64,
            HostCall::DictBytes(dict) => self.call.host.dict_bytes(dict) as u64,
            HostCall::DictEvictions(dict) => self.call.host.dict_evictions(dict) as u64,
            HostCall::OpenClients => self.call.host.open_clients() as u64,
            HostCall::Alive => u64::from(self.call.host.alive(channel(0), element(0))),
            HostCall::Load => self.call.host.load(channel(0), element(0)) as u64,
            HostCall::Peer => {
                let peer = self.call.host.peer(channel(0), element(0));
                let (_, out) = self.free_output(max_bytes);
                out[..peer.len()].copy_from_slice(&peer);
                self.filled(Some(peer.len()), max_bytes)
            }
            HostCall::Pick(policy) => {
                let key = bytes(1);
                self.call.host.pick(policy, channel(0), &key) as u64
            }
            HostCall::Log => {
                let text = bytes(0);
                self.call.host.log(&text);
                return None;
            }
            HostCall::CounterAdd(counter) => {
                let own = self.call.counters.get(counter as usize);
                match own.filter(|_| !self.module.program.counters[counter as usize].is_gauge) {
                    Some(own) => {
                        own.store(own.load(Ordering::Relaxed).wrapping_add(word(0)), Ordering::Relaxed)
                    }
                    None => self.call.host.counter_add(counter, word(0) as i64),
                }
                return None;
            }
            HostCall::GaugeSet(gauge) => {
                self.call.host.gauge_set(gauge, word(0) as i64);
                return None;
            }
            dict => return self.dict(registers, dict, args, max_bytes),
        })
    }

    /// Calls about dictionaries.
    fn dict(&mut self, registers: &Registers, call: HostCall, args: &[Value], max_bytes: u32) -> Option<u64> {
        let bytes = |index: usize| self.bytes(registers.get(args[index])).to_vec();
        Some(match call {
            HostCall::DictGet(dict) => {
                let key = bytes(0);
                let (host, out) = self.free_output(max_bytes);
                let len = host.dict_get(dict, &key, out);
                self.filled(len, max_bytes)
            }
            HostCall::DictBegin(dict) => {
                let (key, attempt) = (bytes(0), registers.get(args[1]) as i64);
                let (host, out) = self.free_output(max_bytes);
                let len = host.dict_begin(dict, &key, attempt, out);
                self.filled(len, max_bytes)
            }
            HostCall::DictHas(dict) => {
                let key = bytes(0);
                u64::from(self.call.host.dict_has(dict, &key))
            }
            HostCall::DictRemove(dict) => {
                let key = bytes(0);
                u64::from(self.call.host.dict_remove(dict, &key))
            }
            HostCall::DictCommit(dict) => {
                let (key, value) = (bytes(0), bytes(1));
                u64::from(self.call.host.dict_commit(dict, &key, Some(&value)))
            }
            HostCall::DictCommitRemoved(dict) => {
                let key = bytes(0);
                u64::from(self.call.host.dict_commit(dict, &key, None))
            }
            HostCall::DictPut(dict) => {
                let (key, value) = (bytes(0), bytes(1));
                self.call.host.dict_put(dict, &key, &value);
                return None;
            }
            other => panic!("{other:?} is about no dictionary"),
        })
    }

    /// Returns the platform, and where it may write up to `max_bytes`: behind the output so far.
    fn free_output(&mut self, max_bytes: u32) -> (&mut dyn Host, &mut [u8]) {
        let limit = self.call.out.len().min(OUT_BYTES_MAX);
        let start = self.call.out_len;
        let end = (start + max_bytes as usize).min(limit);
        (&mut *self.call.host, &mut self.call.out[start..end])
    }

    /// Appends the `len` bytes that the platform has written to the output and returns a reference to them, or a
    /// missing value if `len` is `None`. Panics when they exceed `max_bytes`.
    fn filled(&mut self, len: Option<usize>, max_bytes: u32) -> u64 {
        let Some(len) = len else { return BytesRef::MISSING.0 };
        assert!(len <= max_bytes as usize, "the platform gives no more than was asked for");
        let start = self.call.out_len as u64;
        self.call.out_len += len;
        BytesRef::new(Region::Out, start, len as u32).0
    }
}
