//! Calls of the platform on behalf of generated code.
//! Promises: numbers of dictionaries and counters are constants of the program; bytes results are copied to the output,
//! never longer than their bound.

use flick_abi::{BytesRef, Policy};
use flick_ir::semantics;

use crate::raw::RawCall;

/// The number of a policy as a word.
pub(crate) fn policy_word(policy: Policy) -> i64 {
    POLICIES.iter().position(|known| *known == policy).expect("every policy is in the table") as i64
}

const POLICIES: [Policy; 5] =
    [Policy::Ketama, Policy::Rendezvous, Policy::RoundRobin, Policy::LeastLoaded, Policy::TwoChoices];

pub(super) extern "C-unwind" fn now(call: &mut RawCall<'_>) -> u64 {
    call.host().now_ns() as u64
}

pub(super) extern "C-unwind" fn random(call: &mut RawCall<'_>) -> u64 {
    call.host().random()
}

pub(super) extern "C-unwind" fn log(call: &mut RawCall<'_>, text: u64) {
    let (regions, _, host) = call.split_with_host(0);
    host.log(regions.bytes(text));
}

pub(super) extern "C-unwind" fn counter_add(call: &mut RawCall<'_>, counter: u64, amount: u64) {
    call.host().counter_add(counter as u32, amount as i64);
}

pub(super) extern "C-unwind" fn gauge_set(call: &mut RawCall<'_>, gauge: u64, value: u64) {
    call.host().gauge_set(gauge as u32, value as i64);
}

pub(super) extern "C-unwind" fn counter_get(call: &mut RawCall<'_>, counter: u64) -> u64 {
    call.host().counter_get(counter as u32) as u64
}

pub(super) extern "C-unwind" fn alive(call: &mut RawCall<'_>, chan: u64) -> u64 {
    let (channel, element) = (semantics::chan_index(chan), semantics::chan_element(chan));
    u64::from(call.host().alive(channel, element))
}

pub(super) extern "C-unwind" fn load(call: &mut RawCall<'_>, chan: u64) -> u64 {
    let (channel, element) = (semantics::chan_index(chan), semantics::chan_element(chan));
    call.host().load(channel, element) as u64
}

pub(super) extern "C-unwind" fn peer(call: &mut RawCall<'_>, chan: u64) -> u64 {
    let (channel, element) = (semantics::chan_index(chan), semantics::chan_element(chan));
    let (_, free, host) = call.split_with_host(18);
    free.copy_from_slice(&host.peer(channel, element));
    call.grow(18)
}

pub(super) extern "C-unwind" fn pick(call: &mut RawCall<'_>, policy: u64, chan: u64, key: u64) -> u64 {
    let (regions, _, host) = call.split_with_host(0);
    host.pick(POLICIES[policy as usize], semantics::chan_index(chan), regions.bytes(key)) as u64
}

pub(super) extern "C-unwind" fn dict_get(call: &mut RawCall<'_>, dict: u64, key: u64, max_bytes: u64) -> u64 {
    let (regions, free, host) = call.split_with_host(max_bytes as usize);
    let found = host.dict_get(dict as u32, regions.bytes(key), free);
    keep(call, found)
}

pub(super) extern "C-unwind" fn dict_has(call: &mut RawCall<'_>, dict: u64, key: u64) -> u64 {
    let (regions, _, host) = call.split_with_host(0);
    u64::from(host.dict_has(dict as u32, regions.bytes(key)))
}

pub(super) extern "C-unwind" fn dict_put(call: &mut RawCall<'_>, dict: u64, key: u64, value: u64) {
    let (regions, _, host) = call.split_with_host(0);
    host.dict_put(dict as u32, regions.bytes(key), regions.bytes(value));
}

pub(super) extern "C-unwind" fn dict_remove(call: &mut RawCall<'_>, dict: u64, key: u64) -> u64 {
    let (regions, _, host) = call.split_with_host(0);
    u64::from(host.dict_remove(dict as u32, regions.bytes(key)))
}

pub(super) extern "C-unwind" fn dict_len(call: &mut RawCall<'_>, dict: u64) -> u64 {
    call.host().dict_len(dict as u32) as u64
}

pub(super) extern "C-unwind" fn dict_bytes(call: &mut RawCall<'_>, dict: u64) -> u64 {
    call.host().dict_bytes(dict as u32) as u64
}

pub(super) extern "C-unwind" fn dict_evictions(call: &mut RawCall<'_>, dict: u64) -> u64 {
    call.host().dict_evictions(dict as u32) as u64
}

pub(super) extern "C-unwind" fn open_clients(call: &mut RawCall<'_>) -> u64 {
    call.host().open_clients() as u64
}

pub(super) extern "C-unwind" fn dict_begin(
    call: &mut RawCall<'_>,
    dict: u64,
    key: u64,
    attempt: u64,
    max_bytes: u64,
) -> u64 {
    let (regions, free, host) = call.split_with_host(max_bytes as usize);
    let found = host.dict_begin(dict as u32, regions.bytes(key), attempt as i64, free);
    keep(call, found)
}

pub(super) extern "C-unwind" fn dict_commit(call: &mut RawCall<'_>, dict: u64, key: u64, value: u64) -> u64 {
    let (regions, _, host) = call.split_with_host(0);
    u64::from(host.dict_commit(dict as u32, regions.bytes(key), Some(regions.bytes(value))))
}

pub(super) extern "C-unwind" fn dict_commit_removed(call: &mut RawCall<'_>, dict: u64, key: u64) -> u64 {
    let (regions, _, host) = call.split_with_host(0);
    u64::from(host.dict_commit(dict as u32, regions.bytes(key), None))
}

/// Takes what the platform wrote into use.
fn keep(call: &mut RawCall<'_>, found: Option<usize>) -> u64 {
    found.map_or(BytesRef::MISSING.0, |len| call.grow(len))
}
