//! State, requests and events: see `parser/state.rs` and `parser/ask.rs` for their grammar.

use rowan::ast::{AstChildren, AstNode, support};

use super::{
    Block, Expr, Literal, Name, Type, child_after, child_after_word, choice, named, nodes, nth_child,
    nth_name,
};
use crate::syntax_kind::SyntaxKind;

nodes! {
    /// `global hits: dict<ipv4, int> max 10000 entries, expire 60s`
    GlobalDecl,
    /// `max 10000 entries`, `max 10000 entries, 64MiB bytes`
    MaxProp,
    /// `expire 60s`
    ExpireProp,
    /// `evict lru`
    EvictProp,
    /// `snapshot "hits" every 30s`
    SnapshotProp,
    /// `local name := value`
    LocalStmt,
    /// `except closed client:`
    ExceptStmt,
    /// `every 1s:`
    EveryStmt,
    /// `update d[k] from v: (v else 0) + 1`
    UpdateExpr,
    /// `ask backends[i] with req timeout 50ms else none`
    AskExpr,
    /// `ask all backends with req`, `ask all [a with x, b with y] timeout 50ms`, `ask all [x in xs: a[f(x)] with g(x)]`
    AskAllExpr,
    /// `a with x`
    AskItem,
}

choice! {
    /// A property of a `global`.
    GlobalProp {
        /// Maximum number of entries.
        Max(MaxProp),
        /// Lifetime of an entry.
        Expire(ExpireProp),
        /// Eviction policy of a full dictionary.
        Evict(EvictProp),
        /// Snapshot that keeps it across restarts.
        Snapshot(SnapshotProp),
    }
}

/// Eviction policy of a full dictionary.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EvictPolicy {
    /// `lru`
    Lru,
    /// `oldest`
    Oldest,
    /// `nothing`
    Nothing,
}

/// Event of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// `closed`
    Closed,
    /// `broken`
    Broken,
    /// `refused`
    Refused,
    /// `timed_out`
    TimedOut,
    /// `malformed`
    Malformed,
}

named! { GlobalDecl, LocalStmt }

impl GlobalDecl {
    /// Returns its type.
    pub fn ty(&self) -> Option<Type> {
        support::child(self.syntax())
    }

    /// Returns its properties in the order of the source, none of them twice.
    pub fn props(&self) -> AstChildren<GlobalProp> {
        support::children(self.syntax())
    }

    /// Returns `max N entries`.
    pub fn max(&self) -> Option<MaxProp> {
        support::child(self.syntax())
    }

    /// Returns `expire D`.
    pub fn expire(&self) -> Option<ExpireProp> {
        support::child(self.syntax())
    }

    /// Returns `evict POLICY`.
    pub fn evict(&self) -> Option<EvictProp> {
        support::child(self.syntax())
    }

    /// Returns `snapshot "file" every D`.
    pub fn snapshot(&self) -> Option<SnapshotProp> {
        support::child(self.syntax())
    }
}

impl MaxProp {
    /// Returns how many entries.
    pub fn entries(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns how many bytes of memory, if that is bounded.
    pub fn bytes(&self) -> Option<Expr> {
        nth_child(self.syntax(), 1)
    }
}

impl ExpireProp {
    /// Returns how long.
    pub fn duration(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl EvictProp {
    /// Returns the policy; `None` for one that was reported as an error.
    pub fn policy(&self) -> Option<EvictPolicy> {
        Some(match nth_name(self.syntax(), 1)?.text() {
            "lru" => EvictPolicy::Lru,
            "oldest" => EvictPolicy::Oldest,
            "nothing" => EvictPolicy::Nothing,
            _ => return None,
        })
    }
}

impl SnapshotProp {
    /// Returns the name of the file, a string.
    pub fn file(&self) -> Option<Literal> {
        support::child(self.syntax())
    }

    /// Returns how often it is written, if that is said.
    pub fn every(&self) -> Option<Expr> {
        child_after_word(self.syntax(), "every")
    }
}

impl LocalStmt {
    /// Returns its type, if it is written.
    pub fn ty(&self) -> Option<Type> {
        support::child(self.syntax())
    }

    /// Returns the first value.
    pub fn value(&self) -> Option<Expr> {
        support::child(self.syntax())
    }
}

impl ExceptStmt {
    /// Returns the word for what happened.
    pub fn event(&self) -> Option<Name> {
        nth_name(self.syntax(), 1) // behind the word `except`
    }

    /// Returns what happened; `None` for a word that was reported as an error.
    pub fn kind(&self) -> Option<EventKind> {
        Some(match self.event()?.text() {
            "closed" => EventKind::Closed,
            "broken" => EventKind::Broken,
            "refused" => EventKind::Refused,
            "timed_out" => EventKind::TimedOut,
            "malformed" => EventKind::Malformed,
            _ => return None,
        })
    }

    /// Returns the channel, or the array of which it happened to one.
    pub fn channel(&self) -> Option<Name> {
        nth_name(self.syntax(), 2)
    }

    /// Returns the name of the element's index: `i` in `except broken backends[i]:`.
    pub fn index(&self) -> Option<Name> {
        support::token(self.syntax(), SyntaxKind::LBrack).and(nth_name(self.syntax(), 3))
    }

    /// Returns what to do.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

impl EveryStmt {
    /// Returns how often.
    pub fn interval(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns what to do.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

impl UpdateExpr {
    /// Returns the entry that changes: an `Expr::Index`, if the program is right.
    pub fn target(&self) -> Option<Expr> {
        support::child(self.syntax())
    }

    /// Returns the name of its old value, an option.
    pub fn value_name(&self) -> Option<Name> {
        nth_name(self.syntax(), 2) // update, from, name
    }

    /// Returns the block whose value is the new one.
    pub fn body(&self) -> Option<Block> {
        support::child(self.syntax())
    }
}

impl AskExpr {
    /// Returns the channel.
    pub fn channel(&self) -> Option<Expr> {
        nth_child(self.syntax(), 0)
    }

    /// Returns what is sent.
    pub fn message(&self) -> Option<Expr> {
        child_after(self.syntax(), SyntaxKind::WithKw)
    }

    /// Returns how long to wait, if that is said.
    pub fn timeout(&self) -> Option<Expr> {
        child_after_word(self.syntax(), "timeout")
    }

    /// Returns what the value is when no reply came; `none` makes an option of it.
    pub fn else_value(&self) -> Option<Expr> {
        child_after(self.syntax(), SyntaxKind::ElseKw)
    }
}

impl AskAllExpr {
    /// Returns the array that the same message goes to; `None` where there are `items`.
    pub fn channels(&self) -> Option<Expr> {
        if self.is_list() { None } else { nth_child(self.syntax(), 0) }
    }

    /// Returns the message that goes to each of `channels`.
    pub fn message(&self) -> Option<Expr> {
        if self.is_list() { None } else { child_after(self.syntax(), SyntaxKind::WithKw) }
    }

    /// Says whether the requests are listed in brackets.
    pub fn is_list(&self) -> bool {
        support::token(self.syntax(), SyntaxKind::LBrack).is_some()
    }

    /// Returns the name of an element where one request stands for each of a list.
    pub fn each_name(&self) -> Option<Name> {
        if self.is_each() { nth_name(self.syntax(), 2) } else { None } // ask, all, name
    }

    /// Returns what there is a request for each of; a range is `Expr::Range`.
    pub fn each_of(&self) -> Option<Expr> {
        if self.is_each() { nth_child(self.syntax(), 0) } else { None }
    }

    /// Says whether one request stands in brackets for each element of a list.
    pub fn is_each(&self) -> bool {
        support::token(self.syntax(), SyntaxKind::Colon).is_some()
    }

    /// Returns the requests that are listed; the one for each element where there is such a one.
    pub fn items(&self) -> AstChildren<AskItem> {
        support::children(self.syntax())
    }

    /// Returns how long to wait for all of them, if that is said.
    pub fn timeout(&self) -> Option<Expr> {
        child_after_word(self.syntax(), "timeout")
    }
}

impl AskItem {
    /// Returns the channel.
    pub fn channel(&self) -> Option<Expr> {
        nth_child(self.syntax(), 0)
    }

    /// Returns what is sent.
    pub fn message(&self) -> Option<Expr> {
        child_after(self.syntax(), SyntaxKind::WithKw)
    }
}
