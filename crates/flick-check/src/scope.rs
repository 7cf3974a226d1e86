//! The names in scope in a function or rule.
//! Promises: a name has one meaning while it is in scope; every local that is used is marked as used.

use crate::diagnostic::Sink;
use crate::hir::{ChannelId, Local, LocalId, Span, Ty};
use crate::report;

/// Declaration that a name in a body refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedName {
    Local(LocalId),
    Channel(ChannelId),
}

/// A channel of the process, and whether its rules use it.
#[derive(Clone, Debug)]
pub(crate) struct ScopeChannel {
    pub(crate) name: String,
    pub(crate) ty: Ty,
    pub(crate) span: Span,
    pub(crate) is_used: bool,
}

/// The names in scope in a body; empty in a grammar.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    pub(crate) locals: Vec<Local>,
    used: Vec<bool>,
    visible: Vec<(String, LocalId)>,
    pub(crate) channels: Vec<ScopeChannel>,
    /// Names in scope everywhere: `global`s, and the `local`s of the process.
    outer: Vec<(String, Span)>,
}

impl Scope {
    /// Sets the names in scope everywhere.
    pub(crate) fn set_outer(&mut self, outer: Vec<(String, Span)>) {
        self.outer = outer;
    }

    /// The scope of a rule.
    pub(crate) fn of_process(channels: Vec<ScopeChannel>) -> Self {
        Self { channels, ..Self::default() }
    }

    /// Declares a local; a name that is already in scope is reported, and then refers to the new one.
    pub(crate) fn declare(&mut self, name: &str, ty: Ty, span: Span, sink: &mut Sink) -> LocalId {
        let mut ty = ty;
        if let Some(first) = self.location_of(name)
            && name != "_"
        {
            sink.push(report::names::shadowed(span.clone(), name, first));
            // It is not known which of the two the program means.
            ty = Ty::Unknown;
        }
        let id = self.hidden(name, ty, span);
        self.visible.push((name.to_owned(), id));
        id
    }

    /// Binds a name to a local that exists already, under another name or none.
    pub(crate) fn bind(&mut self, name: &str, local: LocalId, span: Span, sink: &mut Sink) {
        if let Some(first) = self.location_of(name)
            && name != "_"
        {
            sink.push(report::names::shadowed(span, name, first));
        }
        self.visible.push((name.to_owned(), local));
    }

    /// Adds a local without a name in the source, such as the message of a rule.
    pub(crate) fn hidden(&mut self, name: &str, ty: Ty, span: Span) -> LocalId {
        let id = LocalId(self.locals.len() as u32);
        self.locals.push(Local { name: name.to_owned(), ty, span });
        self.used.push(false);
        id
    }

    fn location_of(&self, name: &str) -> Option<Span> {
        let local = self.visible.iter().rev().find(|(known, _)| known == name);
        let channel = self.channels.iter().find(|channel| channel.name == name);
        local
            .map(|(_, id)| self.locals[id.0 as usize].span.clone())
            .or_else(|| channel.map(|channel| channel.span.clone()))
            .or_else(|| self.outer.iter().find(|(known, _)| known == name).map(|(_, span)| span.clone()))
    }

    /// Resolves a name and marks it as used.
    pub(crate) fn resolve(&mut self, name: &str) -> Option<(ResolvedName, Ty)> {
        if let Some((_, id)) = self.visible.iter().rev().find(|(known, _)| known == name) {
            self.used[id.0 as usize] = true;
            return Some((ResolvedName::Local(*id), self.locals[id.0 as usize].ty.clone()));
        }
        let index = self.channels.iter().position(|channel| channel.name == name)?;
        self.channels[index].is_used = true;
        Some((ResolvedName::Channel(ChannelId(index as u32)), self.channels[index].ty.clone()))
    }

    /// Opens a block; pass the result to `close`.
    pub(crate) fn open(&self) -> usize {
        self.visible.len()
    }

    /// Removes the names declared since `open`.
    pub(crate) fn close(&mut self, mark: usize) {
        self.visible.truncate(mark);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let locals = self.visible.iter().map(|(name, _)| name.clone());
        let channels = self.channels.iter().map(|channel| channel.name.clone());
        let outer = self.outer.iter().map(|(name, _)| name.clone());
        locals.chain(channels).chain(outer).collect()
    }

    /// Unused locals, in order of declaration; those with a leading underscore are excluded.
    pub(crate) fn unused(&self) -> impl Iterator<Item = (usize, &Local)> {
        let unused = self.locals.iter().enumerate().filter(|(index, _)| !self.used[*index]);
        unused.filter(|(_, local)| !local.name.starts_with('_') && !local.name.is_empty())
    }
}
