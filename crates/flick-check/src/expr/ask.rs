//! `ask` and `ask all`: requests whose reply a function waits for.
//! Promises: an asked channel sends and receives, gets a message of its type, and its grammar matches replies to
//! requests.
//! Not here: where an `ask` is allowed (`effects.rs`), their number (`cost.rs`).

use flick_abi::limits::ASKS_MAX;
use flick_syntax::ast;

use super::{Exprs, unknown};
use crate::hir::{AskAll, Block, Expr, ExprKind, Span, Ty, UnitId};
use crate::report;

impl Exprs<'_> {
    /// `ask channel with message timeout d else value`.
    pub(crate) fn ask(&mut self, ask: &ast::AskExpr, span: Span) -> Expr {
        let channel = self.opt_expr(ask.channel(), &span);
        let reply = self.reply_unit(&channel, false);
        let message = self.ask_message(ask.message(), &channel, &span);
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
            let reply = self.reply_unit(&channels, true);
            let message = self.ask_message(ask.message(), &channels, &span);
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
            let location = self.span(item.range());
            let channel = self.opt_expr(item.channel(), &location);
            let message = self.ask_message(item.message(), &channel, &location);
            match (self.reply_unit(&channel, false), &reply) {
                (None, _) => is_broken = true,
                (Some(unit), None) => reply = Some((unit, channel.span.clone())),
                (Some(unit), Some((first, first_span))) if unit != *first => {
                    let (found, wanted) =
                        (self.items.unit(unit).name.clone(), self.items.unit(*first).name.clone());
                    self.sink.push(report::ask::different_replies(
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
            self.sink.push(report::ask::number_of_asks(span.clone(), each.len(), ASKS_MAX));
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
            let location = exprs.span(item.range());
            let channel = exprs.opt_expr(item.channel(), &location);
            found = exprs.reply_unit(&channel, false);
            let message = exprs.ask_message(item.message(), &channel, &location);
            (channel, message)
        });
        let timeout = self.timeout(ask.timeout());
        let Some(over) = over else { return unknown(span) };
        if over.max == 0 || over.max as usize > ASKS_MAX || ask.items().count() != 1 {
            self.sink.push(report::ask::number_for_each(span.clone(), over.max, ASKS_MAX));
            return unknown(span);
        }
        let max = over.max;
        replies(AskAll::Over(Box::new(over)), found, max, timeout, span)
    }

    /// Returns the type that a channel of one direction needs to be asked.
    fn with_both_directions(
        &self,
        receives: Option<UnitId>,
        sends: Option<UnitId>,
        is_array: bool,
    ) -> String {
        let items = &self.items;
        let units = || (0..items.units.len() as u32).map(UnitId);
        let replies = sends.and_then(|sends| items.unit(sends).facts.replies).or(sends);
        let requests =
            receives.and_then(|of| units().find(|unit| items.unit(*unit).facts.replies == Some(of)));
        let name = |unit: Option<UnitId>| unit.map_or("cmd", |unit| items.unit(unit).name.as_str());
        let channel = format!("{}/{}", name(receives.or(replies)), name(sends.or(requests).or(receives)));
        if is_array { format!("[{channel}]") } else { channel }
    }

    /// Returns the unit of the replies of an asked channel; an invalid channel is reported.
    fn reply_unit(&mut self, channel: &Expr, is_all: bool) -> Option<UnitId> {
        let span = channel.span.clone();
        let (receives, sends) = match (&channel.ty, is_all) {
            (Ty::Chan { receives, sends }, false) | (Ty::ChanArray { receives, sends }, true) => {
                (*receives, *sends)
            }
            (Ty::Unknown, _) => return None,
            (Ty::ChanArray { .. }, false) => {
                let (name, _) = self.channel_location(channel);
                self.sink.push(report::ask::missing_index(span, &name));
                return None;
            }
            (Ty::Chan { .. }, true) => {
                let (name, _) = self.channel_location(channel);
                self.sink.push(report::ask::channel_after_ask_all(span, &name));
                return None;
            }
            (other, _) => {
                let found = self.items.describe(other);
                self.sink.push(report::ask::not_a_channel(span, &found));
                return None;
            }
        };
        let (name, location) = self.channel_location(channel);
        let unit = match (receives, sends) {
            (Some(receives), Some(sends)) => {
                // The unit of the requests declares how replies are matched.
                let is_request = self.items.unit(sends).facts.replies == Some(receives);
                if is_request && self.items.unit(sends).facts.in_order {
                    return Some(receives);
                }
                receives
            }
            (receives, sends) => {
                let declared =
                    self.with_both_directions(receives, sends, matches!(channel.kind, ExprKind::Index(..)));
                let misses = if receives.is_none() { "is send-only" } else { "is receive-only" };
                self.sink.push(report::ask::one_direction(span, &name, misses, &declared, location));
                return None;
            }
        };
        let declared = self.items.unit(unit);
        // If requests and replies are different units, the property is declared on the request.
        let request =
            sends.map(|sends| &self.items.unit(sends).facts).filter(|facts| facts.replies == Some(unit));
        let is_declared_on_request = request.is_some_and(|facts| facts.in_order || facts.exclusive);
        if !declared.facts.in_order && !is_declared_on_request {
            self.sink.push(report::ask::no_replies(span, &name, &declared.name, declared.span.clone()));
            return None;
        }
        Some(unit)
    }

    /// Checks the message of an `ask`.
    fn ask_message(&mut self, message: Option<ast::Expr>, channel: &Expr, around: &Span) -> Expr {
        let Some(message) = message else { return unknown(around.clone()) };
        let wanted = match channel.ty {
            Ty::Chan { sends: Some(unit), .. } | Ty::ChanArray { sends: Some(unit), .. } => unit,
            _ => return self.expr(&message),
        };
        let message = self.expr_like(&message, &Ty::Record(wanted));
        if !matches!(message.ty, Ty::Unknown) && message.ty != Ty::Record(wanted) {
            let (name, location) = self.channel_location(channel);
            let (unit, found) = (self.items.unit(wanted).name.clone(), self.items.describe(&message.ty));
            let span = message.span.clone();
            self.sink.push(report::channels::wrong_message(span, &name, &unit, &found, location));
        }
        message
    }

    fn timeout(&mut self, timeout: Option<ast::Expr>) -> Option<Box<Expr>> {
        let timeout = timeout?;
        let timeout = self.expr_like(&timeout, &Ty::Duration);
        match (&timeout.ty, &timeout.kind) {
            (Ty::Duration, _) if is_zero(&timeout) => {
                self.sink.push(report::ask::zero_timeout(timeout.span.clone()));
            }
            (Ty::Duration | Ty::Unknown, _) => {}
            (Ty::Int { .. }, ExprKind::Int(number)) => {
                self.sink.push(report::ask::timeout_unit(timeout.span.clone(), Some(*number)));
            }
            (Ty::Int { .. }, _) => self.sink.push(report::ask::timeout_unit(timeout.span.clone(), None)),
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

/// Whether a duration is a literal zero.
fn is_zero(timeout: &Expr) -> bool {
    match &timeout.kind {
        ExprKind::Int(ns) => *ns <= 0,
        ExprKind::Recast(inner) => is_zero(inner),
        _ => false,
    }
}
