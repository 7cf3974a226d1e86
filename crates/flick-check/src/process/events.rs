//! Event handlers and timers: `except` and `every`.
//! Promises: each event of a channel has at most one handler; a timer has an interval.

use flick_abi::limits::CHANNEL_ELEMENTS_MAX;
use flick_syntax::ast;

use super::Rules;
use crate::expr::Expectation;
use crate::globals::positive_duration;
use crate::hir::{ChannelId, Event, Handler, Span, Timer, Ty};
use crate::limits::TIMER_INTERVAL_NS_MIN;
use crate::load::span_of;
use crate::range::Range;
use crate::report;

impl Rules<'_> {
    /// `except EVENT channel[i]:`.
    pub(super) fn except(&mut self, except: &ast::ExceptStmt, span: Span) {
        let (Some(kind), Some(name), Some(body)) = (except.kind(), except.channel(), except.body()) else {
            self.is_silent = true;
            return;
        };
        let location = self.span(name.range());
        let Some(index) = self.channels.iter().position(|channel| channel.name == name.text()) else {
            self.is_silent = true;
            let names: Vec<String> = self.channels.iter().map(|channel| channel.name.clone()).collect();
            let known = names.iter().map(String::as_str);
            self.sink.push(report::ask::not_a_channel_of(location, name.text(), known));
            return;
        };
        let is_array = matches!(self.channels[index].ty, Ty::ChanArray { .. });
        let element = except.index();
        match (&element, is_array) {
            (None, true) => self.sink.push(report::ask::index_missing(location.clone(), name.text())),
            (Some(element), false) if self.channels[index].ty != Ty::Unknown => {
                let span = self.span(element.range());
                self.sink.push(report::ask::index_of_single(span, name.text()));
            }
            _ => {}
        }
        let event = event_of(kind);
        let channel = ChannelId(index as u32);
        let first = self.handlers.iter().find(|known| known.event == event && known.channel == channel);
        if let Some(first) = first {
            let word = except.event().map_or(String::new(), |word| word.text().replace('_', " "));
            let report =
                report::ask::second_handler(location.clone(), &word, name.text(), first.span.clone());
            self.sink.push(report);
        }
        let head = self.span(except.range().start..name.range().end);
        let (body, locals) = self.body(|exprs| {
            let ty = Range { lo: 0, hi: CHANNEL_ELEMENTS_MAX as i128 - 1 }.ty();
            match &element {
                Some(element) => {
                    let location = exprs.span(element.range());
                    exprs.scope.declare(element.text(), ty, location, exprs.sink);
                }
                None => {
                    exprs.scope.hidden("", ty, location);
                }
            }
            exprs.block(&body, Expectation::NoValue).0
        });
        let span = Span { range: span.range.start..head.range.end, ..span };
        self.handlers.push(Handler { event, channel, locals, body, span });
    }

    /// `every D:`.
    pub(super) fn every(&mut self, every: &ast::EveryStmt, span: Span) {
        let interval = positive_duration(
            every.interval(),
            span.clone(),
            self.decl.file,
            "`every`",
            "every 1s",
            self.sink,
        );
        if let (Some(ns), Some(written)) = (interval, every.interval())
            && ns < TIMER_INTERVAL_NS_MIN
        {
            let location = span_of(self.decl.file, written.range());
            self.sink.push(report::state::bad_interval(
                location,
                "`every`",
                "a duration of at least 1ms",
                "every 1s",
            ));
        }
        let Some(body) = every.body() else { return };
        let head = every.interval().map_or(span.range.start as usize, |interval| interval.range().end);
        let (body, locals) = self.body(|exprs| exprs.block(&body, Expectation::NoValue).0);
        let span = Span { range: span.range.start..head as u32, ..span };
        self.timers.push(Timer { interval_ns: interval.unwrap_or(1), locals, body, span });
    }
}

fn event_of(kind: ast::EventKind) -> Event {
    match kind {
        ast::EventKind::Closed => Event::Closed,
        ast::EventKind::Broken => Event::Broken,
        ast::EventKind::Refused => Event::Refused,
        ast::EventKind::TimedOut => Event::TimedOut,
        ast::EventKind::Malformed => Event::Malformed,
    }
}
