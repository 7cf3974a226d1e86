//! Random operations that build strings and lists, keep state, ask, call the platform, and loops around all that.
//! Promises: what the operations demand of their operands holds for every input; see `data`.

use flick_abi::{HostCall, Policy};

use super::body::{Body, Scope};
use super::{
    BOOL_SLOTS, BYTES_SLOTS, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, NUMBER_SLOTS, STATE_BYTES, STATE_NUMBERS,
    VALUE_BYTES_MAX,
};
use crate::data::{Binary, BlockId, FuncKind, Op, Terminator, Type, Value};

/// Longest bytes value that random functions make.
pub(super) const BYTES_MAX: u64 = 256;
/// Rounds of a random loop.
const TRIPS_MAX: usize = 4;

/// A list in the output.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) value: Value,
    /// Words that may be written.
    pub(super) words: usize,
    /// Type of its elements.
    pub(super) ty: Type,
}

impl Body<'_> {
    /// A string operation that only reads.
    pub(super) fn string(&mut self, block: BlockId, scope: &mut Scope) {
        let bytes = self.some(block, scope, Type::Bytes);
        let base = self.rng.pick(&[10, 16]);
        let (ty, op, len) = match self.rng.below(8) {
            0 => {
                let (start, end) = (self.number(block, scope), self.number(block, scope));
                (Type::Bytes, Op::Slice { bytes, start, end }, self.len(bytes))
            }
            1 => {
                let index = self.number(block, scope);
                (Type::Int, Op::ByteAt { bytes, index }, 0)
            }
            2 => {
                let other = self.some(block, scope, Type::Bytes);
                (Type::Int, Op::Find(bytes, other), 0)
            }
            3 => (Type::Bytes, Op::Trim(bytes), self.len(bytes)),
            4 => {
                let other = self.some(block, scope, Type::Bytes);
                (Type::Bool, Op::SameText(bytes, other), 0)
            }
            5 => (Type::Bool, Op::IsInt { bytes, base }, 0),
            _ => (Type::Int, Op::ParseInt { bytes, base }, 0),
        };
        let value = self.define(block, scope, ty, op);
        self.set_len(value, len);
    }

    /// Adds an operation that makes new bytes.
    pub(super) fn build(&mut self, block: BlockId, scope: &mut Scope) {
        let slack = self.rng.below(3) as u64;
        let (op, len) = match self.rng.below(6) {
            0 | 1 => {
                let parts = self.parts(block, scope);
                let len = parts.iter().map(|part| self.len(*part)).sum::<u64>() + slack;
                (Op::Concat { parts, max_bytes: len as u32 }, len)
            }
            2 if self.rng.chance(30) => {
                let bytes = self.some(block, scope, Type::Bytes);
                (Op::FormatAddress(bytes), 47)
            }
            2 => {
                let value = self.number(block, scope);
                (Op::FormatInt { value, signed: self.rng.chance(50), base: self.rng.pick(&[10, 16]) }, 20)
            }
            3 => {
                let bytes = self.some(block, scope, Type::Bytes);
                let len = self.len(bytes);
                (Op::Case { bytes, upper: self.rng.chance(50), max_bytes: len as u32 }, len)
            }
            4 => {
                let mut items = self.parts(block, scope);
                for _ in 0..self.rng.below(3) {
                    let ty = self.rng.pick(&[Type::Int, Type::Bool, Type::Uint]);
                    items.push(self.some(block, scope, ty));
                }
                let len = items.iter().map(|item| 8 + self.len(*item)).sum::<u64>() + slack;
                (Op::Pack { items, max_bytes: len as u32 }, len)
            }
            _ => {
                let (bytes, separator) =
                    (self.some(block, scope, Type::Bytes), self.some(block, scope, Type::Bytes));
                let max = 1 + self.rng.below(5) as u32;
                let value = self.define(block, scope, Type::Bytes, Op::Split { bytes, separator, max });
                self.set_len(value, 8 * u64::from(max));
                scope.lists.push(List { value, words: 0, ty: Type::Bytes });
                return;
            }
        };
        // What is longer would make everything behind it longer still.
        if len <= BYTES_MAX {
            let value = self.define(block, scope, Type::Bytes, op);
            self.set_len(value, len);
        }
    }

    fn parts(&mut self, block: BlockId, scope: &mut Scope) -> Vec<Value> {
        (0..self.rng.below(4)).map(|_| self.some(block, scope, Type::Bytes)).collect()
    }

    /// Makes, reads or writes a list, or takes packed values apart.
    pub(super) fn words(&mut self, block: BlockId, scope: &mut Scope) {
        let list = if scope.lists.is_empty() { None } else { Some(self.rng.pick(&scope.lists)) };
        match (self.rng.below(5), list) {
            (0, Some(List { value, words, ty })) if words > 0 => {
                let limit = self.constant(block, scope, words - 1);
                let index = self.at_most(block, scope, limit);
                let element = self.some(block, scope, ty);
                self.push(block, None, Op::WordSet { bytes: value, index, value: element });
            }
            (1, Some(List { value, ty, .. })) => {
                let index = self.number(block, scope);
                let element = self.define(block, scope, ty, Op::WordGet { bytes: value, index });
                self.set_len(element, BYTES_MAX);
            }
            (2, _) => {
                let (bytes, index) = (self.some(block, scope, Type::Bytes), self.number(block, scope));
                let ty = self.rng.pick(&[Type::Int, Type::Uint, Type::Bool]);
                self.define(block, scope, ty, Op::WordGet { bytes, index });
            }
            (3, _) => {
                let packed = self.some(block, scope, Type::Bytes);
                let index = self.rng.below(4) as u32;
                let value = self.define(block, scope, Type::Bytes, Op::PackedBytes { packed, index });
                self.set_len(value, self.len(packed));
            }
            _ => {
                let words = 1 + self.rng.below(6);
                let count = self.constant(block, scope, words);
                let op = Op::WordsNew { words: count, words_max: (words + self.rng.below(2)) as u32 };
                let value = self.define(block, scope, Type::Bytes, op);
                self.set_len(value, 8 * (words as u64 + 1));
                let ty = self.rng.pick(&[Type::Int, Type::Bool, Type::Bytes, Type::Chan]);
                scope.lists.push(List { value, words, ty });
            }
        }
    }

    /// Reads a message of the activation, or copies a part of it.
    pub(super) fn message(&mut self, block: BlockId, scope: &mut Scope) {
        let message = self.some(block, scope, Type::Message);
        if self.function.kind != FuncKind::Order && self.rng.chance(25) {
            let limit = self.constant(block, scope, MESSAGE_BYTES_MIN);
            let end = self.at_most(block, scope, limit);
            let start = self.at_most(block, scope, end);
            return self.push(block, None, Op::EmitMessageOf { message, start, end });
        }
        let (ty, slots) = match self.rng.below(3) {
            0 => (Type::Int, NUMBER_SLOTS),
            1 => (Type::Bool, BOOL_SLOTS),
            _ => (Type::Bytes, BYTES_SLOTS),
        };
        let op = Op::MessageGet { message, slot: self.slot(slots) };
        let value = self.define(block, scope, ty, op);
        self.set_len(value, MESSAGE_BYTES_MAX as u64);
    }

    /// Reads or writes the state of the session.
    pub(super) fn state(&mut self, block: BlockId, scope: &mut Scope) {
        let word = self.rng.below(STATE_NUMBERS as usize) as u32;
        let (bytes_word, max_bytes) = self.rng.pick(&STATE_BYTES);
        let ty = self.rng.pick(&[Type::Int, Type::Uint, Type::Bool]);
        match self.rng.below(5) {
            0 => {
                self.define(block, scope, ty, Op::StateLoad { word });
            }
            1 => {
                let value = self.some(block, scope, ty);
                self.push(block, None, Op::StateStore { word, value });
            }
            2 => {
                let op = Op::StateLoadBytes { word: bytes_word, max_bytes };
                let value = self.define(block, scope, Type::Bytes, op);
                self.set_len(value, u64::from(max_bytes));
            }
            3 => {
                let value = self.cut(block, scope, max_bytes as usize);
                self.push(block, None, Op::StateStoreBytes { word: bytes_word, max_bytes, value });
            }
            _ => {
                let reason = self.number(block, scope);
                self.push(block, None, Op::Fail { reason });
            }
        }
    }

    /// Bytes of at most `max_bytes`.
    fn cut(&mut self, block: BlockId, scope: &mut Scope, max_bytes: usize) -> Value {
        let bytes = self.some(block, scope, Type::Bytes);
        let (start, end) = (self.constant(block, scope, 0), self.constant(block, scope, max_bytes));
        let value = self.define(block, scope, Type::Bytes, Op::Slice { bytes, start, end });
        self.set_len(value, max_bytes as u64);
        value
    }

    /// Calls the platform. Returns the block where it goes on.
    pub(super) fn host(&mut self, block: BlockId, scope: &mut Scope) -> BlockId {
        let dict = self.rng.below(2) as u32;
        let counter = self.rng.below(2) as u32;
        let (ty, call, takes): (Option<Type>, HostCall, &[Type]) = match self.rng.below(21) {
            0 => (Some(Type::Int), HostCall::Now, &[]),
            1 => (Some(Type::Uint), HostCall::Random, &[]),
            2 => (None, HostCall::Log, &[Type::Bytes]),
            3 => (None, HostCall::CounterAdd(counter), &[Type::Int]),
            4 => (None, HostCall::GaugeSet(1), &[Type::Int]),
            5 => (Some(Type::Int), HostCall::CounterGet(counter), &[]),
            6 => (Some(Type::Bool), HostCall::Alive, &[Type::Chan]),
            7 => (Some(Type::Int), HostCall::Load, &[Type::Chan]),
            8 => (Some(Type::Bytes), HostCall::Peer, &[Type::Chan]),
            9 | 10 => {
                let policy = self.rng.pick(&[
                    Policy::Ketama,
                    Policy::Rendezvous,
                    Policy::RoundRobin,
                    Policy::LeastLoaded,
                    Policy::TwoChoices,
                ]);
                (Some(Type::Int), HostCall::Pick(policy), &[Type::Chan, Type::Bytes])
            }
            11 => (Some(Type::Bool), HostCall::DictHas(dict), &[Type::Bytes]),
            12 | 13 => return self.put(block, scope, dict),
            14 => (Some(Type::Bool), HostCall::DictRemove(dict), &[Type::Bytes]),
            15 => (Some(Type::Int), HostCall::DictLen(dict), &[]),
            16 => (Some(Type::Int), HostCall::DictBytes(dict), &[]),
            17 => (Some(Type::Int), HostCall::DictEvictions(dict), &[]),
            18 => (Some(Type::Int), HostCall::OpenClients, &[]),
            19 => return self.lookup(block, scope, dict),
            _ => return self.update(block, scope, dict),
        };
        let args = takes.iter().map(|ty| self.some(block, scope, *ty)).collect();
        let max_bytes = if ty == Some(Type::Bytes) { 18 } else { 0 };
        let op = Op::Host { call, args, max_bytes };
        match ty {
            Some(ty) => {
                let value = self.define(block, scope, ty, op);
                self.set_len(value, u64::from(max_bytes));
            }
            None => self.push(block, None, op),
        }
        block
    }

    fn put(&mut self, block: BlockId, scope: &mut Scope, dict: u32) -> BlockId {
        let args = vec![self.cut(block, scope, 4), self.cut(block, scope, VALUE_BYTES_MAX as usize)];
        self.push(block, None, Op::Host { call: HostCall::DictPut(dict), args, max_bytes: 0 });
        block
    }

    /// Bytes that may be missing: the way where they are not hands them over, the other something else.
    pub(super) fn unless_missing(&mut self, block: BlockId, scope: &mut Scope, found: Value) -> BlockId {
        let missing = self.define(block, scope, Type::Bool, Op::IsMissing(found));
        let (there, not) = (self.block(&[]), self.block(&[]));
        let meet = self.block(&[Type::Bytes]);
        let (then, otherwise) = ((not, Vec::new()), (there, Vec::new()));
        self.end(block, Terminator::Branch { cond: missing, then, otherwise });
        self.end(there, Terminator::Jump(meet, vec![found]));
        let instead = self.some(not, &mut scope.clone(), Type::Bytes);
        self.end(not, Terminator::Jump(meet, vec![instead]));
        scope.values.extend(self.params(meet));
        meet
    }

    fn lookup(&mut self, block: BlockId, scope: &mut Scope, dict: u32) -> BlockId {
        let key = self.cut(block, scope, 4);
        let found = self.value(Type::Bytes);
        let op = Op::Host { call: HostCall::DictGet(dict), args: vec![key], max_bytes: VALUE_BYTES_MAX };
        self.push(block, Some(found), op);
        self.unless_missing(block, scope, found)
    }

    /// `update`: begins and commits until it has succeeded, which it has at the last attempt.
    fn update(&mut self, block: BlockId, scope: &mut Scope, dict: u32) -> BlockId {
        let key = self.cut(block, scope, 4);
        let start = self.constant(block, scope, 0);
        let head = self.block(&[Type::Int]);
        self.function.blocks[head.0 as usize].trips_max =
            Some(flick_abi::limits::DICT_ATTEMPTS_MAX as u32 - 1);
        self.end(block, Terminator::Jump(head, vec![start]));
        let attempt = self.params(head)[0];
        let mut inner = scope.clone();
        inner.values.push(attempt);
        let found = self.value(Type::Bytes);
        let call = HostCall::DictBegin(dict);
        let op = Op::Host { call, args: vec![key, attempt], max_bytes: VALUE_BYTES_MAX };
        self.push(head, Some(found), op);
        let body = self.unless_missing(head, &mut inner, found);
        let (call, args) = if self.rng.chance(25) {
            (HostCall::DictCommitRemoved(dict), vec![key])
        } else {
            (HostCall::DictCommit(dict), vec![key, self.cut(body, &mut inner, VALUE_BYTES_MAX as usize)])
        };
        let done = self.define(body, &mut inner, Type::Bool, Op::Host { call, args, max_bytes: 0 });
        let one = self.constant(body, &mut inner, 1);
        let next = self.define(body, &mut inner, Type::Int, Op::Binary(Binary::Add, attempt, one));
        let exit = self.block(&[]);
        let (then, otherwise) = ((exit, Vec::new()), (head, vec![next]));
        self.end(body, Terminator::Branch { cond: done, then, otherwise });
        exit
    }

    /// A loop that counts to a number of its input and carries values along. Returns the block behind it.
    pub(super) fn repeat(&mut self, block: BlockId, scope: &mut Scope, depth: usize) -> BlockId {
        let trips = self.rng.below(TRIPS_MAX + 1);
        let carried: Vec<Type> = (0..self.rng.below(3))
            .map(|_| self.rng.pick(&[Type::Int, Type::Uint, Type::Bool, Type::Bytes, Type::Chan]))
            .collect();
        let limit = self.constant(block, scope, trips);
        let limit = self.at_most(block, scope, limit);
        let mut args = vec![self.constant(block, scope, 0)];
        args.extend(carried.iter().map(|ty| self.some(block, scope, *ty)));
        let types: Vec<Type> = [Type::Int].into_iter().chain(carried.iter().copied()).collect();
        let (head, body) = (self.block(&types), self.block(&[]));
        self.function.blocks[head.0 as usize].trips_max = Some(trips as u32);
        self.end(block, Terminator::Jump(head, args));
        let params = self.params(head);
        let mut inner = scope.clone();
        inner.values.extend(&params);
        let goes_on = self.define(head, &mut inner, Type::Bool, Op::Binary(Binary::LtU, params[0], limit));
        // The last round may end the function instead of going round.
        self.rounds *= trips + 1;
        self.loop_depth += 1;
        let (last, mut inner) = self.sequence(body, inner, depth - 1);
        self.loop_depth -= 1;
        self.rounds /= trips + 1;
        let one = self.constant(last, &mut inner, 1);
        let mut args =
            vec![self.define(last, &mut inner, Type::Int, Op::Binary(Binary::Add, params[0], one))];
        args.extend(carried.iter().map(|ty| self.some(last, &mut inner, *ty)));
        self.end(last, Terminator::Jump(head, args));
        let exit = self.block(&[]);
        let (then, otherwise) = ((body, Vec::new()), (exit, Vec::new()));
        self.end(head, Terminator::Branch { cond: goes_on, then, otherwise });
        scope.values.extend(params);
        exit
    }

    /// Asks, gives way and looks at the answers. Returns the block behind the suspension.
    pub(super) fn wait(&mut self, mut block: BlockId, scope: &mut Scope) -> BlockId {
        self.waits_left -= 1;
        for _ in 0..self.rng.below(3) {
            self.ask(block, scope);
        }
        if self.rng.chance(30) {
            block = self.ask_all(block, scope);
        }
        let then = self.block(&[]);
        self.states += 1;
        self.end(block, Terminator::Suspend { then, state: self.states });
        for index in 0..1 + self.rng.below(2) {
            let index = self.constant(then, scope, index);
            let answer = self.define(then, scope, Type::Int, Op::Answer { index });
            let none = self.constant(then, scope, 0);
            // A failure stands for the message that started the activation.
            let number = self.define(then, scope, Type::Int, Op::Binary(Binary::MaxS, answer, none));
            self.define(then, scope, Type::Message, Op::AsMessage(number));
        }
        then
    }

    fn ask(&mut self, block: BlockId, scope: &mut Scope) {
        let (chan, timeout_ns) = (self.some(block, scope, Type::Chan), self.number(block, scope));
        let message = self.some(block, scope, Type::Message);
        let op = match self.rng.below(3) {
            0 => Op::AskOriginal { chan, timeout_ns },
            1 => Op::AskMessage { chan, message, timeout_ns },
            _ => {
                let mark = self.define(block, scope, Type::Int, Op::OutMark);
                let value = self.some(block, scope, Type::Bytes);
                self.push(block, None, Op::EmitBytes { value });
                let tail_from = self.rng.chance(50).then(|| self.constant(block, scope, 3));
                let tail_of = tail_from.filter(|_| self.rng.chance(50)).map(|_| message);
                Op::AskRebuilt { chan, mark, tail_from, tail_of, timeout_ns }
            }
        };
        self.push(block, None, op);
    }

    /// Asks each element of an array.
    fn ask_all(&mut self, block: BlockId, scope: &mut Scope) -> BlockId {
        let array = self.define(block, scope, Type::Chan, Op::Const(1));
        let len = self.define(block, scope, Type::Int, Op::ChanLen(array));
        let start = self.constant(block, scope, 0);
        let (head, body, exit) = (self.block(&[Type::Int]), self.block(&[]), self.block(&[]));
        self.function.blocks[head.0 as usize].trips_max = Some(3);
        self.end(block, Terminator::Jump(head, vec![start]));
        let index = self.params(head)[0];
        let mut inner = scope.clone();
        let goes_on = self.define(head, &mut inner, Type::Bool, Op::Binary(Binary::LtU, index, len));
        let (then, otherwise) = ((body, Vec::new()), (exit, Vec::new()));
        self.end(head, Terminator::Branch { cond: goes_on, then, otherwise });
        let chan = self.define(body, &mut inner, Type::Chan, Op::ChanElem { chan: array, index });
        self.push(body, None, Op::AskOriginal { chan, timeout_ns: index });
        let one = self.constant(body, &mut inner, 1);
        let next = self.define(body, &mut inner, Type::Int, Op::Binary(Binary::Add, index, one));
        self.end(body, Terminator::Jump(head, vec![next]));
        exit
    }
}
