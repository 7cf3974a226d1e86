//! Which channels are asked: by the parameters of functions, by the bodies of a process.
//! Promises: a channel that may be asked is found through names, choices, repetitions and calls; at worst one is named
//! that is not asked on the path taken.

use std::collections::{BTreeMap, BTreeSet};

use crate::hir::{AskAll, Block, ChannelId, Expr, ExprKind, Fun, LocalId, Source, Stmt};
use crate::walk::{self, Child};

/// Where the value of an expression of a channel type comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Root {
    Param(u32),
    Channel(u32),
}

type Roots = BTreeSet<Root>;

/// By function: the parameters that it asks, itself or through others.
pub(crate) struct Asked {
    params: Vec<Roots>,
}

impl Asked {
    /// Finds out for all functions, which stand callees first.
    pub(crate) fn of(funs: &[Fun]) -> Self {
        let mut asked = Asked { params: Vec::new() };
        for fun in funs {
            let names = (0..fun.param_count as u32).map(|param| (param, Roots::from([Root::Param(param)])));
            let roots = asked.roots(&fun.body, names.collect());
            asked.params.push(roots);
        }
        asked
    }

    /// The channels of the process that `body` asks.
    pub(crate) fn channels(&self, body: &Block) -> BTreeSet<ChannelId> {
        let roots = self.roots(body, BTreeMap::new());
        let channels = roots.into_iter().filter_map(|root| match root {
            Root::Channel(id) => Some(ChannelId(id)),
            Root::Param(_) => None,
        });
        channels.collect()
    }

    fn roots(&self, body: &Block, names: BTreeMap<u32, Roots>) -> Roots {
        let mut names = Names { roots: names };
        names.block(body);
        let mut out = Roots::new();
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
                    if let Root::Param(param) = root
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

/// What the names of channels in a body stand for.
struct Names {
    roots: BTreeMap<u32, Roots>,
}

impl Names {
    /// Enters every name that a block gives; a name is given before it is used.
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
                if let Source::Channels(channels) = &**source {
                    self.name(*local, channels);
                }
            }
            ExprKind::AskAll { asks: AskAll::Over(over), .. } => {
                if let Source::Channels(channels) = &over.source {
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
        let mut roots = Roots::new();
        self.add(value, &mut roots);
        self.roots.insert(local.0, roots);
    }

    /// Adds where the channel `expr` comes from.
    fn add(&self, expr: &Expr, out: &mut Roots) {
        let mut branch = |block: &Block| block.value.iter().for_each(|value| self.add(value, out));
        match &expr.kind {
            ExprKind::Local(id) => out.extend(self.roots.get(&id.0).into_iter().flatten()),
            ExprKind::Channel(id) => {
                out.insert(Root::Channel(id.0));
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
