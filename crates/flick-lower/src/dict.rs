//! Dictionaries and counters: keys and values as bytes, and calls of the platform.
//! Promises: equal keys are equal bytes; an `update` is tried at most `UPDATE_ATTEMPTS_MAX` times, the last time with
//! the entry to itself.
//! Refuses: other effects in the body of an `update`; the checker does.

use flick_abi::HostCall;
use flick_check::hir::{Block, DictId, Expr, LocalId, Ty};
use flick_ir::data::{Binary, Op, SourceOrigin, Type, Value};

use crate::body::Body;
use crate::layout::{key_bytes_max, packed_bytes_max, plain_bytes_max};
use crate::limits::{UPDATE_ATTEMPTS_MAX, UPDATE_BYTES_MAX};
use crate::value::Val;

impl Body<'_> {
    /// Asks the platform for a word.
    pub fn host(&mut self, ty: Type, call: HostCall, args: Vec<Value>) -> Value {
        self.f.define(ty, Op::Host { call, args, max_bytes: 0 })
    }

    /// Tells the platform something.
    pub fn host_effect(&mut self, call: HostCall, args: Vec<Value>) {
        self.f.effect(Op::Host { call, args, max_bytes: 0 });
    }

    /// A value as bytes that stand alone.
    pub fn pack(&mut self, val: &Val, ty: &Ty) -> Value {
        let carrier = self.cx.carrier(ty);
        let items = self.words(&carrier, val);
        let max_bytes = packed_bytes_max(self.cx.program, ty);
        self.f.define(Type::Bytes, Op::Pack { items, max_bytes })
    }

    fn unpack(&mut self, packed: Value, ty: &Ty) -> Val {
        let carrier = self.cx.carrier(ty);
        let words: Vec<Value> = carrier
            .types(self.cx)
            .into_iter()
            .zip(0..)
            .map(|(ty, index)| match ty {
                Type::Bytes => self.f.define(ty, Op::PackedBytes { packed, index }),
                ty => {
                    let index = self.f.int(i64::from(index));
                    self.f.define(ty, Op::WordGet { bytes: packed, index })
                }
            })
            .collect();
        self.arrived(&carrier, &mut words.into_iter())
    }

    fn dict_types(&self, dict: DictId) -> (&Ty, &Ty) {
        let dict = &self.cx.program.dicts[dict.0 as usize];
        (&dict.key, &dict.value)
    }

    fn dict_key(&mut self, dict: DictId, key: &Expr) -> Value {
        let ty = self.dict_types(dict).0.clone();
        let val = self.expr(key);
        self.at(&key.span);
        match plain_bytes_max(&ty) {
            Some(_) => val.bytes(),
            None => self.pack(&val, &ty),
        }
    }

    /// Unpacks the entry of a key that the platform returned, as an option.
    fn found(&mut self, packed: Value, ty: &Ty) -> Val {
        let is_missing = self.f.define(Type::Bool, Op::IsMissing(packed));
        let (missing, there) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(is_missing, missing, there);
        self.f.go_on_in(missing);
        let present = self.f.bool(false);
        let absent = Val::Option { present, value: Box::new(self.absent(ty)) };
        let missing = (self.f.current(), absent);
        self.f.go_on_in(there);
        let value = self.unpack(packed, ty);
        let value = self.some(value);
        let there = (self.f.current(), value);
        self.join(vec![missing, there])
    }

    /// `d[k]`.
    pub fn dict_get(&mut self, dict: DictId, key: &Expr) -> Val {
        let key = self.dict_key(dict, key);
        let ty = self.dict_types(dict).1.clone();
        let max_bytes = packed_bytes_max(self.cx.program, &ty);
        let call = Op::Host { call: HostCall::DictGet(dict.0), args: vec![key], max_bytes };
        let packed = self.f.define(Type::Bytes, call);
        self.found(packed, &ty)
    }

    /// `k in d`.
    pub fn dict_has(&mut self, dict: DictId, key: &Expr) -> Val {
        let key = self.dict_key(dict, key);
        Val::Bool(self.host(Type::Bool, HostCall::DictHas(dict.0), vec![key]))
    }

    /// `remove(d, k)`.
    pub fn dict_remove(&mut self, dict: DictId, key: &Expr) -> Val {
        let key = self.dict_key(dict, key);
        Val::Bool(self.host(Type::Bool, HostCall::DictRemove(dict.0), vec![key]))
    }

    /// `d[k] := v`.
    pub fn dict_put(&mut self, dict: DictId, key: &Expr, value: &Expr) {
        let key = self.dict_key(dict, key);
        let ty = self.dict_types(dict).1.clone();
        let val = self.expr(value);
        self.at(&value.span);
        let packed = self.pack(&val, &ty);
        self.host_effect(HostCall::DictPut(dict.0), vec![key, packed]);
    }

    /// `update d[k] from v: body`: begin, compute, commit; again while another worker was faster.
    pub fn dict_update(
        &mut self,
        dict: DictId,
        key: &Expr,
        old: LocalId,
        block: &Block,
        may_remove: bool,
    ) -> Val {
        let key = self.dict_key(dict, key);
        let origin = self.f.origin();
        let attempts = self.attempts(dict);
        let last = i64::from(UPDATE_ATTEMPTS_MAX) - 1;
        if attempts == 1 {
            let attempt = self.f.int(last);
            return self.attempt((dict, key, attempt), origin, old, block, may_remove).0;
        }
        let head = self.f.new_loop(&[Type::Int], attempts);
        let first = self.f.int(last + 1 - i64::from(attempts));
        self.f.jump(head, vec![first]);

        self.f.go_on_in(head);
        let attempt = self.f.params(head)[0];
        let (new, done) = self.attempt((dict, key, attempt), origin, old, block, may_remove);

        let last = self.f.int(last);
        let is_last = self.f.binary(Type::Bool, Binary::LeS, last, attempt);
        let is_over = self.f.binary(Type::Bool, Binary::Or, done, is_last);
        let (exit, again) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(is_over, exit, again);
        self.f.go_on_in(again);
        let one = self.f.int(1);
        let next = self.f.binary(Type::Int, Binary::Add, attempt, one);
        self.f.jump(head, vec![next]);
        self.f.go_on_in(exit);
        new
    }

    /// One attempt at an `update`: what is new, and whether it was kept.
    fn attempt(
        &mut self,
        (dict, key, attempt): (DictId, Value, Value),
        origin: SourceOrigin,
        old: LocalId,
        block: &Block,
        may_remove: bool,
    ) -> (Val, Value) {
        let ty = self.dict_types(dict).1.clone();
        let max_bytes = packed_bytes_max(self.cx.program, &ty);
        let call = Op::Host { call: HostCall::DictBegin(dict.0), args: vec![key, attempt], max_bytes };
        let packed = self.f.define(Type::Bytes, call);
        let before = self.found(packed, &ty);
        self.set_local(old, before);
        let (present, value) = self.block(block).option();
        // A body that is plain in the author's text is always there.
        let new = if may_remove { Val::Option { present, value: Box::new(value) } } else { value };
        self.f.set_origin(origin);
        let done = self.commit(dict, key, &new, &ty, may_remove);
        (new, done)
    }

    fn commit(&mut self, dict: DictId, key: Value, new: &Val, ty: &Ty, may_remove: bool) -> Value {
        if !may_remove {
            let packed = self.pack(new, ty);
            return self.host(Type::Bool, HostCall::DictCommit(dict.0), vec![key, packed]);
        }
        let (present, value) = new.clone().option();
        let (write, remove) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(present, write, remove);
        self.f.go_on_in(write);
        let packed = self.pack(&value, ty);
        let written = self.host(Type::Bool, HostCall::DictCommit(dict.0), vec![key, packed]);
        self.f.go_on_in(remove);
        let removed = self.host(Type::Bool, HostCall::DictCommitRemoved(dict.0), vec![key]);
        self.join(vec![(write, Val::Bool(written)), (remove, Val::Bool(removed))]).bool()
    }

    /// Returns how often an update is tried: once, with the entry locked, where all attempts would build too much.
    fn attempts(&self, dict: DictId) -> u32 {
        let dict = &self.cx.program.dicts[dict.0 as usize];
        let values = packed_bytes_max(self.cx.program, &dict.value).saturating_mul(3);
        let bytes = values.saturating_add(key_bytes_max(self.cx.program, dict));
        if bytes.saturating_mul(UPDATE_ATTEMPTS_MAX) > UPDATE_BYTES_MAX { 1 } else { UPDATE_ATTEMPTS_MAX }
    }
}
