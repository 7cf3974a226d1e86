//! Finds the channels that may be asked, by the parameters of functions and by the bodies of a process.
//! Promises: a channel that may be asked is found through names, branches, loops and calls; the result may include
//! one that is not asked on the path taken.

use std::collections::{BTreeMap, BTreeSet};

use crate::hir::{AskAll, Block, ChannelId, Expr, ExprKind, Fun, LocalId, LoopSource, Stmt};
use crate::walk::{self, Child};

/// Origin of a channel value: a parameter of the function or a channel of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Param(u32),
    Channel(u32),
}

type Origins = BTreeSet<Origin>;

/// By function: the parameters that it asks, itself or through calls.
pub(crate) struct AskTargets {
    params: Vec<Origins>,
}

impl AskTargets {
    /// Computes the targets of all functions, whose callees come first.
    pub(crate) fn of(funs: &[Fun]) -> Self {
        let mut asked = AskTargets { params: Vec::new() };
        for fun in funs {
            let names =
                (0..fun.param_count as u32).map(|param| (param, Origins::from([Origin::Param(param)])));
            let origins = asked.origins(&fun.body, names.collect());
            asked.params.push(origins);
        }
        asked
    }

    /// Returns the channels of the process that `body` asks.
    pub(crate) fn channels(&self, body: &Block) -> BTreeSet<ChannelId> {
        let origins = self.origins(body, BTreeMap::new());
        let channels = origins.into_iter().filter_map(|root| match root {
            Origin::Channel(id) => Some(ChannelId(id)),
            Origin::Param(_) => None,
        });
        channels.collect()
    }

    fn origins(&self, body: &Block, names: BTreeMap<u32, Origins>) -> Origins {
        let mut names = Aliases { origins: names };
        names.block(body);
        let mut out = Origins::new();
        walk::block(body, &mut |expr| match &expr.kind {
            ExprKind::Ask { channel, .. } => names.add(channel, &mut out),
            ExprKind::AskAll { asks: AskAll::Array { channels, .. }, .. } => names.add(channels, &mut out),
            ExprKind::AskAll { asks: AskAll::Each(asks), .. } => {
                asks.iter().for_each(|(channel, _)| names.add(channel, &mut out));
            }
            ExprKind::AskAll { asks: AskAll::Over(over), .. } => names.add(over.channel(), &mut out),
            ExprKind::Call(fun, args) => {
                let asked = self.params.get(fun.0 as usize);
                for root in asked.into_iter().flatten() {
                    if let Origin::Param(param) = root
                        && let Some(arg) = args.get(*param as usize)
                    {
                        names.add(arg, &mut out);
                    }
                }
            }
            _ => {}
        });
        out
    }
}

/// Origins of the names in a body that stand for channels.
struct Aliases {
    origins: BTreeMap<u32, Origins>,
}

impl Aliases {
    /// Enters every name that a block defines; a name is defined before it is used.
    fn block(&mut self, block: &Block) {
        for stmt in &block.stmts {
            let value = match stmt {
                Stmt::Let(_, value)
                | Stmt::LetTuple(_, value)
                | Stmt::Assign(_, value)
                | Stmt::Expr(value) => value,
            };
            self.expr(value);
            if let Stmt::Let(local, value) = stmt {
                self.name(*local, value);
            }
        }
        block.value.iter().for_each(|value| self.expr(value));
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::For { local, source, .. }
            | ExprKind::Fold { local, source, .. }
            | ExprKind::MapList { local, source, .. }
            | ExprKind::Filter { local, source, .. } => {
                if let LoopSource::Channels(channels) = &**source {
                    self.name(*local, channels);
                }
            }
            ExprKind::AskAll { asks: AskAll::Over(over), .. } => {
                if let LoopSource::Channels(channels) = &over.source {
                    self.name(over.local, channels);
                }
            }
            _ => {}
        }
        walk::children(expr, &mut |child| match child {
            Child::Expr(child) => self.expr(child),
            Child::Block(child) => self.block(child),
        });
    }

    fn name(&mut self, local: LocalId, value: &Expr) {
        let mut origins = Origins::new();
        self.add(value, &mut origins);
        self.origins.insert(local.0, origins);
    }

    /// Adds the origins of the channel `expr`.
    fn add(&self, expr: &Expr, out: &mut Origins) {
        let mut branch = |block: &Block| block.value.iter().for_each(|value| self.add(value, out));
        match &expr.kind {
            ExprKind::Local(id) => out.extend(self.origins.get(&id.0).into_iter().flatten()),
            ExprKind::Channel(id) => {
                out.insert(Origin::Channel(id.0));
            }
            ExprKind::Index(base, _) => self.add(base, out),
            ExprKind::If { then, otherwise, .. } => {
                branch(then);
                otherwise.iter().for_each(branch);
            }
            ExprKind::Switch { arms, otherwise, .. } => {
                arms.iter().for_each(|(_, body)| branch(body));
                otherwise.iter().for_each(branch);
            }
            ExprKind::Match { arms, otherwise, .. } => {
                arms.iter().for_each(|(_, _, body)| branch(body));
                otherwise.iter().for_each(branch);
            }
            _ => {}
        }
    }
}
