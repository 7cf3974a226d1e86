//! `for`, `fold`, `map` and `filter`: one counted loop with what it carries as parameters of its head.
//! Promises: the trips are those of the checker's bound; what a body binds is gone after it.
//! Refuses: asks and sends without bound; the checker does.

use flick_abi::limits::CHANNEL_ELEMENTS_MAX;
use flick_check::hir::{BinaryOp, Block, Expr, LocalId, LoopSource, Ty};
use flick_ir::data::{Binary, Op, Type, Value};

use crate::body::Body;
use crate::carrier::Carrier;
use crate::interval::Interval;
use crate::layout::WORD_BYTES;
use crate::list::elem_of;
use crate::value::{Num, Val};

/// The evaluated sequence that a loop iterates over.
#[derive(Clone, Debug)]
pub struct Run {
    kind: RunKind,
    /// The number of iterations (`Int`).
    pub count: Value,
    /// The largest number of iterations.
    pub trips_max: u32,
}

#[derive(Clone, Debug)]
enum RunKind {
    List { memory: Value, elem: Ty },
    Range { lo: Num, range: Interval },
    Channels { chan: Value },
}

impl Body<'_> {
    /// Evaluates the sequence that a loop iterates over.
    pub fn run_of(&mut self, source: &LoopSource) -> Run {
        match source {
            LoopSource::List(list) => {
                let Ty::List { elem, max } = &list.ty else { panic!("the checker found a list here") };
                let memory = self.expr(list).bytes();
                self.run_of_list(memory, elem, *max)
            }
            LoopSource::Range { lo, hi, trips_max } => {
                let (lo, hi) = (self.expr(lo).num(), self.expr(hi).num());
                let is_some = self.compare(BinaryOp::Lt, lo, hi);
                let difference = self.f.binary(Type::Int, Binary::Sub, hi.value(), lo.value());
                let zero = self.f.int(0);
                let count = self.select(is_some, difference, zero);
                let last = (hi.range.hi - 1).max(lo.range.lo);
                let range = Interval::new(lo.range.lo, last);
                Run { kind: RunKind::Range { lo, range }, count, trips_max: *trips_max }
            }
            LoopSource::Channels(channels) => {
                let chan = self.expr(channels).chan();
                self.run_of_channels(chan, CHANNEL_ELEMENTS_MAX as u32)
            }
        }
    }

    /// A loop over the elements of a list.
    pub fn run_of_list(&mut self, memory: Value, elem: &Ty, trips_max: u32) -> Run {
        let count = self.list_len(memory, elem);
        Run { kind: RunKind::List { memory, elem: elem.clone() }, count, trips_max }
    }

    /// A loop over the elements of an array of channels.
    pub fn run_of_channels(&mut self, chan: Value, trips_max: u32) -> Run {
        let count = self.f.define(Type::Int, Op::ChanLen(chan));
        Run { kind: RunKind::Channels { chan }, count, trips_max }
    }

    fn element(&mut self, run: &Run, index: Value) -> Val {
        match &run.kind {
            RunKind::List { memory, elem } => self.elem_from(*memory, index, elem),
            RunKind::Range { lo, range } => {
                let ty = if range.within(Interval::INT) { Type::Int } else { Type::Uint };
                Val::Num(Num::one(self.f.binary(ty, Binary::Add, lo.value(), index), *range))
            }
            RunKind::Channels { chan } => {
                Val::Chan(self.f.define(Type::Chan, Op::ChanElem { chan: *chan, index }))
            }
        }
    }

    /// Runs `step` for each element with its index and what is carried, which it gives back changed.
    pub fn repeat(
        &mut self,
        run: &Run,
        carried: Vec<(Carrier, Val)>,
        step: impl FnOnce(&mut Self, Val, Value, Vec<Val>) -> Vec<Val>,
    ) -> Vec<Val> {
        let mut types = vec![Type::Int];
        let mut args = vec![self.f.int(0)];
        let mut carriers = Vec::new();
        for (carrier, val) in carried {
            types.extend(carrier.types(self.cx));
            args.extend(self.words(&carrier, &val));
            carriers.push(carrier);
        }
        let head = self.f.new_loop(&types, run.trips_max);
        let (body, exit) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.jump(head, args);

        self.f.go_on_in(head);
        let mut params = self.f.params(head).to_vec().into_iter();
        let index = params.next().expect("the index is the first parameter");
        let vals: Vec<Val> = carriers.iter().map(|carrier| self.arrived(carrier, &mut params)).collect();
        let more = self.f.binary(Type::Bool, Binary::LtS, index, run.count);
        self.f.branch_to(more, body, exit);

        self.f.go_on_in(body);
        let element = self.element(run, index);
        let next = step(self, element, index, vals.clone());
        let one = self.f.int(1);
        let mut args = vec![self.f.binary(Type::Int, Binary::Add, index, one)];
        for (carrier, val) in carriers.iter().zip(next) {
            args.extend(self.words(carrier, &val));
        }
        self.f.jump(head, args);
        self.f.go_on_in(exit);
        vals
    }

    /// `for`.
    pub fn lower_for(&mut self, local: LocalId, source: &LoopSource, block: &Block) -> Val {
        let run = self.run_of(source);
        self.repeat(&run, Vec::new(), |body, element, _, _| {
            body.set_local(local, element);
            body.block(block);
            Vec::new()
        });
        Val::Nothing
    }

    /// `fold`.
    pub fn lower_fold(
        &mut self,
        local: LocalId,
        source: &LoopSource,
        acc: (LocalId, &Expr, &Ty),
        block: &Block,
    ) -> Val {
        let (acc, init, ty) = acc;
        let run = self.run_of(source);
        let init = self.expr(init);
        let carrier = self.cx.carrier(ty);
        let result = self.repeat(&run, vec![(carrier, init)], |body, element, _, carried| {
            body.set_local(local, element);
            for val in carried {
                body.set_local(acc, val);
            }
            vec![body.block(block)]
        });
        result.into_iter().next().expect("a fold carries its accumulator")
    }

    /// `map` over a source.
    pub fn lower_map(&mut self, local: LocalId, source: &LoopSource, block: &Block, ty: &Ty) -> Val {
        let elem = elem_of(ty);
        let run = self.run_of(source);
        let memory = self.list_new(run.count, elem, run.trips_max);
        self.repeat(&run, Vec::new(), |body, element, index, _| {
            body.set_local(local, element);
            let val = body.block(block);
            body.elem_to(memory, index, elem, &val);
            Vec::new()
        });
        Val::Bytes(memory)
    }

    /// `filter`.
    pub fn lower_filter(&mut self, local: LocalId, source: &LoopSource, block: &Block, ty: &Ty) -> Val {
        let elem = elem_of(ty);
        let run = self.run_of(source);
        let memory = self.list_new(run.count, elem, run.trips_max);
        let none = Val::Num(self.constant(0));
        let counter = Carrier::Num(Type::Int, Interval::new(0, i128::from(run.trips_max)));
        let kept = self.repeat(&run, vec![(counter, none)], |body, element, _, carried| {
            body.set_local(local, element.clone());
            let keep = body.block(block).bool();
            let count = carried[0].num().value();
            // An element that is not kept is overwritten by the next one, or cut off; there is capacity for all.
            body.elem_to(memory, count, elem, &element);
            let step = body.f.bool_to_int(keep);
            let next = body.f.binary(Type::Int, Binary::Add, count, step);
            vec![Val::Num(Num::one(next, Interval::new(0, i128::from(i64::MAX))))]
        });
        let bytes = i64::from(self.cx.stride(elem) * WORD_BYTES);
        let start = self.f.int(0);
        let end = self.times(kept[0].num().value(), bytes);
        Val::Bytes(self.f.define(Type::Bytes, Op::Slice { bytes: memory, start, end }))
    }
}
