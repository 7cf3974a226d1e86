//! `ask` and `ask all`: requests whose reply a function waits for.
//! Promises: what is asked both sends and receives, gets a message of its type, and its grammar says which reply is whose.
//! Not here: where an `ask` may stand (`effects.rs`), how many there may be (`cost.rs`).

use flick_abi::limits::ASKS_MAX;
use flick_syntax::ast;

use crate::expr::{Exprs, unknown};
use crate::hir::{AskAll, Block, Expr, ExprKind, Span, Ty, UnitId};
use crate::report;

impl Exprs<'_> {
    /// `ask channel with message timeout d else value`.
    pub(crate) fn ask(&mut self, ask: &ast::AskExpr, span: Span) -> Expr {
        let channel = self.opt_expr(ask.channel(), &span);
        let reply = self.asked(&channel, false);
        let message = self.asked_with(ask.message(), &channel, &span);
        let timeout = self.timeout(ask.timeout());
        let Some(reply) = reply else {
            ask.else_value().map(|value| self.expr(&value));
            return unknown(span);
        };
        let plain = Ty::Record(reply);
        let mut ty = plain.clone();
        let otherwise = ask.else_value().map(|value| {
            let value = self.expr_like(&value, &plain);
            ty = match value.ty {
                Ty::Option(_) => Ty::Option(Box::new(plain.clone())),
                Ty::Unknown => Ty::Unknown,
                _ => plain.clone(),
            };
            let value = self.coerce(value, &ty, "the reply", None);
            Block { stmts: Vec::new(), value: Some(Box::new(value)) }
        });
        let kind =
            ExprKind::Ask { channel: Box::new(channel), message: Box::new(message), timeout, otherwise };
        Expr { kind, ty, span }
    }

    /// `ask all channels with message`, `ask all [c1 with m1, c2 with m2]`.
    pub(crate) fn ask_all(&mut self, ask: &ast::AskAllExpr, span: Span) -> Expr {
        if !ask.is_list() {
            let channels = self.opt_expr(ask.channels(), &span);
            let reply = self.asked(&channels, true);
            let message = self.asked_with(ask.message(), &channels, &span);
            let timeout = self.timeout(ask.timeout());
            let asks = AskAll::Array { channels: Box::new(channels), message: Box::new(message) };
            return replies(asks, reply, ASKS_MAX as u32, timeout, span);
        }
        if ask.is_each() {
            return self.ask_each(ask, span);
        }
        let mut each = Vec::new();
        let mut reply: Option<(UnitId, Span)> = None;
        let mut is_broken = false;
        for item in ask.items() {
            let place = self.span(item.range());
            let channel = self.opt_expr(item.channel(), &place);
            let message = self.asked_with(item.message(), &channel, &place);
            match (self.asked(&channel, false), &reply) {
                (None, _) => is_broken = true,
                (Some(unit), None) => reply = Some((unit, channel.span.clone())),
                (Some(unit), Some((first, first_span))) if unit != *first => {
                    let (found, wanted) =
                        (self.items.unit(unit).name.clone(), self.items.unit(*first).name.clone());
                    self.sink.push(report::asks::different_replies(
                        channel.span.clone(),
                        &found,
                        &wanted,
                        first_span.clone(),
                    ));
                    is_broken = true;
                }
                _ => {}
            }
            each.push((channel, message));
        }
        let timeout = self.timeout(ask.timeout());
        if each.is_empty() || each.len() > ASKS_MAX {
            self.sink.push(report::asks::number_of_asks(span.clone(), each.len(), ASKS_MAX));
            is_broken = true;
        }
        let reply = reply.map(|(unit, _)| unit).filter(|_| !is_broken);
        let count = each.len() as u32;
        replies(AskAll::Each(each), reply, count, timeout, span)
    }

    /// `ask all [x in xs: channel with message]`.
    fn ask_each(&mut self, ask: &ast::AskAllExpr, span: Span) -> Expr {
        let item = ask.items().next();
        let mut found = None;
        let over = self.ask_over(ask, &span, |exprs| {
            let Some(item) = &item else { return unknown_pair(&span) };
            let place = exprs.span(item.range());
            let channel = exprs.opt_expr(item.channel(), &place);
            found = exprs.asked(&channel, false);
            let message = exprs.asked_with(item.message(), &channel, &place);
            (channel, message)
        });
        let timeout = self.timeout(ask.timeout());
        let Some(over) = over else { return unknown(span) };
        if over.max == 0 || over.max as usize > ASKS_MAX || ask.items().count() != 1 {
            self.sink.push(report::asks::number_for_each(span.clone(), over.max, ASKS_MAX));
            return unknown(span);
        }
        let max = over.max;
        replies(AskAll::Over(Box::new(over)), found, max, timeout, span)
    }

    /// The unit of the replies of a channel that is asked; what cannot be asked is reported.
    fn asked(&mut self, channel: &Expr, is_all: bool) -> Option<UnitId> {
        let span = channel.span.clone();
        let (receives, sends) = match (&channel.ty, is_all) {
            (Ty::Chan { receives, sends }, false) | (Ty::ChanArray { receives, sends }, true) => {
                (*receives, *sends)
            }
            (Ty::Unknown, _) => return None,
            (Ty::ChanArray { .. }, false) => {
                let (name, _) = self.channel_place(channel);
                self.sink.push(report::asks::which_element(span, &name));
                return None;
            }
            (Ty::Chan { .. }, true) => {
                let (name, _) = self.channel_place(channel);
                self.sink.push(report::asks::single_channel(span, &name));
                return None;
            }
            (other, _) => {
                let found = self.items.describe(other);
                self.sink.push(report::asks::not_a_channel(span, &found));
                return None;
            }
        };
        let (name, place) = self.channel_place(channel);
        let unit = match (receives, sends) {
            (Some(receives), Some(sends)) => {
                // The unit of the requests says how they go together with their replies.
                let is_request = self.items.unit(sends).facts.replies == Some(receives);
                if is_request && self.items.unit(sends).facts.in_order {
                    return Some(receives);
                }
                receives
            }
            (receives, sends) => {
                let unit = receives.or(sends).map_or("cmd", |unit| self.items.unit(unit).name.as_str());
                let misses = if receives.is_none() { "receives nothing" } else { "sends nothing" };
                self.sink.push(report::asks::one_way(span, &name, misses, unit, place));
                return None;
            }
        };
        let declared = self.items.unit(unit);
        // Where requests and replies are two units, the request's says it.
        let request =
            sends.map(|sends| &self.items.unit(sends).facts).filter(|facts| facts.replies == Some(unit));
        let is_told = request.is_some_and(|facts| facts.in_order || facts.exclusive);
        if !declared.facts.in_order && !is_told {
            self.sink.push(report::asks::no_replies(span, &name, &declared.name, declared.span.clone()));
            return None;
        }
        Some(unit)
    }

    /// The message that a channel is asked with.
    fn asked_with(&mut self, message: Option<ast::Expr>, channel: &Expr, around: &Span) -> Expr {
        let Some(message) = message else { return unknown(around.clone()) };
        let wanted = match channel.ty {
            Ty::Chan { sends: Some(unit), .. } | Ty::ChanArray { sends: Some(unit), .. } => unit,
            _ => return self.expr(&message),
        };
        let message = self.expr_like(&message, &Ty::Record(wanted));
        if !matches!(message.ty, Ty::Unknown) && message.ty != Ty::Record(wanted) {
            let (name, place) = self.channel_place(channel);
            let (unit, found) = (self.items.unit(wanted).name.clone(), self.items.describe(&message.ty));
            let span = message.span.clone();
            self.sink.push(report::channels::wrong_message(span, &name, &unit, &found, place));
        }
        message
    }

    fn timeout(&mut self, timeout: Option<ast::Expr>) -> Option<Box<Expr>> {
        let timeout = timeout?;
        let timeout = self.expr_like(&timeout, &Ty::Duration);
        match (&timeout.ty, &timeout.kind) {
            (Ty::Duration, _) if is_no_time(&timeout) => {
                self.sink.push(report::asks::no_time(timeout.span.clone()));
            }
            (Ty::Duration | Ty::Unknown, _) => {}
            (Ty::Int { .. }, ExprKind::Int(number)) => {
                self.sink.push(report::asks::timeout_unit(timeout.span.clone(), Some(*number)));
            }
            (Ty::Int { .. }, _) => self.sink.push(report::asks::timeout_unit(timeout.span.clone(), None)),
            (other, _) => {
                let found = self.items.describe(other);
                self.sink.push(report::types::mismatch(timeout.span.clone(), "a duration", &found, None));
            }
        }
        Some(Box::new(timeout))
    }
}

fn unknown_pair(span: &Span) -> (Expr, Expr) {
    (unknown(span.clone()), unknown(span.clone()))
}

fn replies(asks: AskAll, reply: Option<UnitId>, max: u32, timeout: Option<Box<Expr>>, span: Span) -> Expr {
    let ty = reply
        .map_or(Ty::Unknown, |unit| Ty::List { elem: Box::new(Ty::Option(Box::new(Ty::Record(unit)))), max });
    Expr { kind: ExprKind::AskAll { asks, timeout }, ty, span }
}

/// Whether a duration is the literal nothing.
fn is_no_time(timeout: &Expr) -> bool {
    match &timeout.kind {
        ExprKind::Int(ns) => *ns <= 0,
        ExprKind::Recast(inner) => is_no_time(inner),
        _ => false,
    }
}
