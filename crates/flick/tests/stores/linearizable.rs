//! A checker of linearizability for the history of one key: is there an order of the calls, each between its start and
//! its end, in which a memcached of one thread would have answered so?
//! Promises: the search ends, as no set of calls with the same state after them is tried twice.
//! Source: Wing and Gong, "Testing and verifying concurrent objects" (1993), with the memory of Lowe, "Testing for
//! linearizability" (2017).

use std::cmp::Reverse;
use std::collections::HashSet;

/// States that a search looks at: some hundred megabytes.
const STATES_MAX: usize = 2_000_000;

/// One request. Values are numbers; a `u64` behind a name is a value to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads the item.
    Get,
    /// Stores an item.
    Set(u64),
    /// Stores an item if there is none.
    Add(u64),
    /// Stores an item if its CAS value is this.
    Cas(u64, u64),
    /// Adds one.
    Incr,
    /// Deletes the item, if its CAS value is this or none is given.
    Delete(Option<u64>),
    /// Deletes all items.
    Flush,
}

/// One reply. Text commands return no CAS value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The value that was read or that the counter has now, and its CAS value.
    Value(u64, Option<u64>),
    /// It is stored, with this CAS value; or deleted.
    Done(Option<u64>),
    /// There is an item already.
    NotStored,
    /// The item has another CAS value.
    Exists,
    /// There is no item.
    Missing,
}

/// One request and its reply, with the times before it was sent and behind its reply.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Time before it was sent.
    pub start: u64,
    /// Time after its reply was read.
    pub end: u64,
    /// The request.
    pub op: Op,
    /// The reply.
    pub answer: Answer,
}

/// The item, if there is one: its value and, if a client has seen it, its CAS value.
type Item = Option<(u64, Option<u64>)>;

/// The item after a call; `None` if the call is not answered so.
fn after(item: Item, op: Op, answer: Answer) -> Option<Item> {
    let may_be = |unique: u64| item.is_some_and(|(_, known)| known.is_none_or(|known| known == unique));
    let is_surely = |unique: u64| item.is_some_and(|(_, known)| known == Some(unique));
    match (op, answer) {
        (Op::Get, Answer::Value(value, cas)) => {
            let (kept, known) = item?;
            let agrees = kept == value && cas.is_none_or(may_be);
            agrees.then_some(Some((value, cas.or(known))))
        }
        (Op::Set(value), Answer::Done(cas)) => Some(Some((value, cas))),
        (Op::Flush, Answer::Done(_)) => Some(None),
        (Op::Add(value), Answer::Done(cas)) => item.is_none().then_some(Some((value, cas))),
        (Op::Add(_), Answer::NotStored) => item.is_some().then_some(item),
        (Op::Cas(unique, value), Answer::Done(cas)) => may_be(unique).then_some(Some((value, cas))),
        (Op::Delete(Some(unique)), Answer::Done(_)) => may_be(unique).then_some(None),
        (Op::Delete(None), Answer::Done(_)) => item.is_some().then_some(None),
        (Op::Cas(unique, _) | Op::Delete(Some(unique)), Answer::Exists) => {
            (item.is_some() && !is_surely(unique)).then_some(item)
        }
        (Op::Incr, Answer::Value(value, cas)) => (item?.0 + 1 == value).then_some(Some((value, cas))),
        (Op::Get | Op::Cas(..) | Op::Incr | Op::Delete(_), Answer::Missing) => item.is_none().then_some(item),
        _ => None,
    }
}

/// The number of calls of each client that have their position in the order, and the item after them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Ordered {
    counts: Vec<usize>,
    item: Item,
}

/// Checks that the calls of these clients, which begin without an item, are linearizable. Each client's keep their
/// order, also where it has sent several at a time.
///
/// Errors: the most calls that have an order, and those that cannot follow them. Panics if the search takes too long.
pub fn check(clients: &[Vec<Call>]) -> Result<(), (usize, Vec<Call>)> {
    let all: usize = clients.iter().map(Vec::len).sum();
    let first = Ordered { counts: vec![0; clients.len()], item: None };
    let mut seen = HashSet::from([first.clone()]);
    let (mut open, mut deepest) = (vec![first], (0, Vec::new()));
    while let Some(ordered) = open.pop() {
        assert!(seen.len() < STATES_MAX, "undecided: {deepest:#?}");
        let count: usize = ordered.counts.iter().sum();
        if count == all {
            return Ok(());
        }
        let next = clients.iter().zip(&ordered.counts).enumerate();
        let next = next.filter_map(|(client, (calls, count))| Some((client, *calls.get(*count)?)));
        let mut next: Vec<(usize, Call)> = next.collect();
        // The next call has started before any other of the rest has ended.
        let first_end = next.iter().map(|(_, call)| call.end).min().unwrap_or(u64::MAX);
        next.retain(|(_, call)| call.start <= first_end);
        if count >= deepest.0 {
            deepest = (count, next.iter().map(|(_, call)| *call).collect());
        }
        next.sort_by_key(|(_, call)| Reverse(call.end));
        let is_same = |call: &Call| {
            call.op != Op::Flush && after(ordered.item, call.op, call.answer) == Some(ordered.item)
        };
        // A call that changes nothing may as well be the next one: what can follow without it can follow with it. A
        // flush without an item might change something later.
        if let Some(same) = next.iter().find(|(_, call)| is_same(call)) {
            next = vec![*same];
        }
        for (client, call) in next {
            let Some(item) = after(ordered.item, call.op, call.answer) else { continue };
            let mut longer = Ordered { item, ..ordered.clone() };
            longer.counts[client] += 1;
            if seen.insert(longer.clone()) {
                open.push(longer);
            }
        }
    }
    Err(deepest)
}

/// Each call from a client of its own.
fn is_linearizable(calls: &[Call]) -> bool {
    check(&calls.iter().map(|call| vec![*call]).collect::<Vec<_>>()).is_ok()
}

fn call(start: u64, end: u64, op: Op, answer: Answer) -> Call {
    Call { start, end, op, answer }
}

#[test]
fn checker_accepts_what_overlaps_in_either_order() {
    let set = [call(1, 2, Op::Set(1), Answer::Done(Some(1))), call(3, 8, Op::Set(2), Answer::Done(Some(2)))];
    for value in [1, 2] {
        let read = call(4, 5, Op::Get, Answer::Value(value, Some(value)));
        assert!(is_linearizable(&[&set[..], &[read]].concat()), "{value}");
    }
    let flush = call(1, 5, Op::Flush, Answer::Done(None));
    let missing = call(6, 7, Op::Get, Answer::Missing);
    assert!(is_linearizable(&[set[0], flush, missing]), "flushed behind the set, not before it");
    let gone = call(4, 5, Op::Delete(None), Answer::Done(None));
    let read = call(6, 7, Op::Get, Answer::Value(2, None));
    assert!(is_linearizable(&[&set[..], &[gone, read]].concat()), "deleted before the second one was stored");
}

#[test]
fn checker_refuses_histories_that_no_order_explains() {
    use Answer::{Done, Exists, Missing, NotStored, Value};
    let set = call(1, 2, Op::Set(5), Done(Some(7)));
    let wrong: &[(&str, &[Call])] = &[
        ("stale read", &[call(3, 4, Op::Set(6), Done(None)), call(5, 6, Op::Get, Value(5, None))]),
        ("lost read", &[call(3, 4, Op::Get, Missing)]),
        ("read from nowhere", &[call(3, 4, Op::Get, Value(9, None))]),
        ("another CAS value", &[call(3, 4, Op::Get, Value(5, Some(8)))]),
        (
            "new, then old",
            &[
                call(3, 9, Op::Set(6), Done(None)),
                call(4, 5, Op::Get, Value(6, None)),
                call(6, 7, Op::Get, Value(5, None)),
            ],
        ),
        ("lost increment", &[call(3, 5, Op::Incr, Value(6, None)), call(4, 6, Op::Incr, Value(6, None))]),
        (
            "two deletes",
            &[call(3, 5, Op::Delete(None), Done(None)), call(4, 6, Op::Delete(None), Done(None))],
        ),
        (
            "no delete",
            &[
                call(3, 5, Op::Delete(None), Missing),
                call(4, 6, Op::Delete(Some(7)), Done(None)),
                call(7, 8, Op::Get, Value(5, None)),
            ],
        ),
        (
            "two with one CAS value",
            &[call(3, 5, Op::Cas(7, 1), Done(Some(8))), call(4, 6, Op::Cas(7, 2), Done(Some(9)))],
        ),
        ("refused CAS value", &[call(3, 4, Op::Cas(7, 1), Exists)]),
        ("read behind a flush", &[call(3, 4, Op::Flush, Done(None)), call(5, 6, Op::Get, Value(5, None))]),
        (
            "increment of what was flushed, kept",
            &[
                call(3, 6, Op::Flush, Done(None)),
                call(4, 5, Op::Incr, Value(6, None)),
                call(7, 8, Op::Get, Value(6, None)),
            ],
        ),
        (
            "flushed twice",
            &[
                call(3, 9, Op::Flush, Done(None)),
                call(4, 5, Op::Get, Missing),
                call(6, 7, Op::Set(6), Done(None)),
                call(10, 11, Op::Get, Missing),
            ],
        ),
        ("added twice", &[call(3, 4, Op::Add(1), Done(None))]),
        ("not added", &[call(3, 4, Op::Delete(None), Done(None)), call(5, 6, Op::Add(1), NotStored)]),
    ];
    for (name, rest) in wrong {
        let history = [&[set], *rest].concat();
        assert!(!is_linearizable(&history), "{name}");
    }
}

#[test]
fn checker_keeps_the_order_of_each_client() {
    let set = |value| call(1, 9, Op::Set(value), Answer::Done(None));
    let read = |value| call(1, 9, Op::Get, Answer::Value(value, None));
    check(&[vec![set(1), set(2)], vec![read(1), read(2)]]).expect("as they were sent");
    check(&[vec![set(1), set(2)], vec![read(2), read(1)]]).expect_err("2 is stored last");
}
