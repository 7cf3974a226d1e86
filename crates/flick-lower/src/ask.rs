//! `ask` and `ask all`: requests whose replies the same activation goes on with.
//! Promises: asks are numbered in the order of the text; behind the suspension each is a message or a reason. What
//! lives across it is plain SSA here; the spill pass keeps it.
//! Refuses: asks in helpers, loops and merges; the checker does. Functions that ask are lowered in place.

use flick_abi::limits::ASKS_MAX;
use flick_check::hir::{AskAll, AskOver, Block, Expr, LoopSource, Ty, UnitId};
use flick_ir::data::{Binary, Op, Terminator, Type, Value};

use crate::body::Body;
use crate::repeat::Run;
use crate::value::{Record, Val};

impl Body<'_> {
    /// `ask channel with message timeout d else value`.
    pub fn lower_ask(
        &mut self,
        channel: &Expr,
        message: &Expr,
        timeout: Option<&Expr>,
        otherwise: Option<&Block>,
        ty: &Ty,
    ) -> Val {
        let unit = replies_of(&channel.ty);
        let chan = self.expr(channel).chan();
        let record = self.expr(message).record();
        let timeout = self.timeout(timeout);
        self.at(&message.span);
        self.for_each_shape(&record, |body, out_message| body.ask_with(out_message, chan, timeout));
        self.suspend();
        let index = self.f.int(0);
        let answer = self.f.define(Type::Int, Op::Answer { index });
        let there = self.is_answered(answer);
        let (got, missing) = (self.f.new_block(&[]), self.f.new_block(&[]));
        self.f.branch_to(there, got, missing);
        self.f.go_on_in(got);
        let reply = Val::Record(Record::other(unit, self.f.define(Type::Message, Op::AsMessage(answer))));
        let reply = if matches!(ty, Ty::Option(_)) { self.some(reply) } else { reply };
        let got = self.f.current();
        match otherwise {
            Some(block) => {
                let missing = self.arm(missing, block);
                self.join(vec![(got, reply), missing])
            }
            None => {
                self.f.go_on_in(missing);
                let least = self.f.int(-1);
                let reason = self.f.binary(Type::Int, Binary::Sub, least, answer);
                self.f.effect(Op::Fail { reason });
                self.f.end(Terminator::Return(Vec::new()));
                self.f.go_on_in(got);
                reply
            }
        }
    }

    /// `ask all`: a list of options in the order of the asks.
    pub fn lower_ask_all(&mut self, asks: &AskAll, timeout: Option<&Expr>, ty: &Ty) -> Val {
        let Ty::List { elem, .. } = ty else { panic!("`ask all` gives a list") };
        match asks {
            AskAll::Array { channels, message } => {
                let unit = replies_of(&channels.ty);
                let chan = self.expr(channels).chan();
                let record = self.expr(message).record();
                let timeout = self.timeout(timeout);
                let run = self.run_of_channels(chan, ASKS_MAX as u32);
                self.at(&message.span);
                self.for_each_shape(&record, |body, out_message| {
                    body.repeat(&run, Vec::new(), |body, element, _, _| {
                        body.ask_with(out_message, element.chan(), timeout);
                        Vec::new()
                    });
                });
                self.suspend();
                self.merge_elements(&run, unit, elem)
            }
            AskAll::Each(pairs) => {
                let sides: Vec<(Value, Record)> = pairs
                    .iter()
                    .map(|(channel, message)| (self.expr(channel).chan(), self.expr(message).record()))
                    .collect();
                let timeout = self.timeout(timeout);
                for (chan, record) in &sides {
                    self.for_each_shape(record, |body, out_message| {
                        body.ask_with(out_message, *chan, timeout)
                    });
                }
                let unit =
                    replies_of(&pairs.first().expect("the checker refuses an ask without a channel").0.ty);
                self.suspend();
                let answers: Vec<Val> = (0..pairs.len())
                    .map(|index| {
                        let index = self.f.int(index as i64);
                        self.answer(index, unit)
                    })
                    .collect();
                self.list_of_vals(&answers, elem)
            }
            AskAll::Over(over) => {
                let mut run = self.run_of(&over.source);
                run.trips_max = rounds_of(over);
                let timeout = self.timeout(timeout);
                self.repeat(&run, Vec::new(), |body, element, _, _| {
                    body.set_local(over.local, element);
                    let chan = body.block(&over.channel).chan();
                    let record = body.block(&over.message).record();
                    body.at(&over.message().span);
                    body.for_each_shape(&record, |body, out_message| {
                        body.ask_with(out_message, chan, timeout)
                    });
                    Vec::new()
                });
                self.suspend();
                self.merge_elements(&run, replies_of(&over.channel().ty), elem)
            }
        }
    }

    /// The answers to asks of an array as a list.
    fn merge_elements(&mut self, run: &Run, unit: UnitId, elem: &Ty) -> Val {
        let memory = self.list_new(run.count, elem, run.trips_max);
        self.repeat(run, Vec::new(), |body, _, index, _| {
            let answer = body.answer(index, unit);
            body.elem_to(memory, index, elem, &answer);
            Vec::new()
        });
        Val::Bytes(memory)
    }

    /// An answer as an option of a message.
    fn answer(&mut self, index: Value, unit: UnitId) -> Val {
        let answer = self.f.define(Type::Int, Op::Answer { index });
        let present = self.is_answered(answer);
        let first = self.f.int(0);
        let number = self.select(present, answer, first);
        let message = self.f.define(Type::Message, Op::AsMessage(number));
        Val::Option { present, value: Box::new(Val::Record(Record::other(unit, message))) }
    }

    fn is_answered(&mut self, answer: Value) -> Value {
        let zero = self.f.int(0);
        self.f.binary(Type::Bool, Binary::LeS, zero, answer)
    }

    fn timeout(&mut self, timeout: Option<&Expr>) -> Value {
        match timeout {
            Some(timeout) => self.expr(timeout).num().value(),
            None => self.f.int(0),
        }
    }

    fn suspend(&mut self) {
        self.suspensions += 1;
        let then = self.f.new_block(&[]);
        self.f.end(Terminator::Suspend { then, state: self.suspensions });
        self.f.go_on_in(then);
    }
}

/// Rounds of a repetition that asks. Those of `ASKS_MAX` rounds are taken to go through an array, whose length is not
/// known before the start; what goes through a list or a range is counted round by round.
fn rounds_of(over: &AskOver) -> u32 {
    match over.source {
        LoopSource::Channels(_) => ASKS_MAX as u32,
        _ if over.max as usize == ASKS_MAX => over.max + 1,
        _ => over.max,
    }
}

/// The grammar of a channel's replies.
fn replies_of(ty: &Ty) -> UnitId {
    match ty {
        Ty::Chan { receives: Some(unit), .. } | Ty::ChanArray { receives: Some(unit), .. } => *unit,
        other => panic!("the checker asks channels that answer, not {other:?}"),
    }
}
