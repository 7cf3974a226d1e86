//! Checks a text as `flick check` does, with the standard library of the repository.

use std::path::PathBuf;

use flick_check::{Diagnostic, Sources, hir};

/// The root of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A text of the repository.
pub fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks `text`; `use` lines import from the standard library only.
pub fn check(name: &str, text: &str) -> (Option<hir::Program>, Vec<Diagnostic>, Sources) {
    flick_check::check(name, text, &|name| {
        let path = root().join(format!("stdlib/{name}.flick"));
        let text = std::fs::read_to_string(path).ok()?;
        Some((format!("<stdlib>/{name}.flick"), text))
    })
}

/// The codes of the diagnostics, in order.
pub fn codes(diagnostics: &[Diagnostic]) -> Vec<&'static str> {
    diagnostics.iter().map(|found| found.code).collect()
}

/// Panics if an expression of an accepted program has no type, because it cannot be lowered.
pub fn assert_known(program: &hir::Program) {
    let mut visit = |expr: &hir::Expr| assert!(is_known(&expr.ty), "{:?} has no type", expr.kind);
    let rules = program.process.iter().flat_map(|process| &process.rules);
    let bodies = program.funs.iter().map(|fun| &fun.body).chain(rules.map(|rule| &rule.body));
    bodies.for_each(|body| flick_check::walk::block(body, &mut visit));
    for unit in &program.units {
        let facts = &unit.facts;
        let truths = [&facts.request, &facts.reply, &facts.ends, &facts.mute, &facts.silent, &facts.more];
        truths.into_iter().flatten().for_each(|fact| flick_check::walk::expr(fact, &mut visit));
        facts.loud.iter().for_each(|(_, expr)| flick_check::walk::expr(expr, &mut visit));
        facts.on.iter().for_each(|(_, expr)| flick_check::walk::expr(expr, &mut visit));
        let late = [
            &facts.keep,
            &facts.carry,
            &facts.last,
            &facts.retry,
            &facts.whole,
            &facts.tunnel,
            &facts.closes,
            &facts.status,
            &facts.failed,
        ];
        facts.stateful.iter().for_each(|fact| flick_check::walk::expr(fact, &mut visit));
        facts
            .forwards
            .iter()
            .flat_map(hir::Forward::exprs)
            .for_each(|expr| flick_check::walk::expr(expr, &mut visit));
        late.into_iter().flatten().for_each(|fact| flick_check::walk::expr(fact, &mut visit));
        unit.body.iter().for_each(|body| visit_row(body, &mut visit));
        for field in &unit.fields {
            field.requires.iter().for_each(|check| flick_check::walk::expr(check, &mut visit));
            match &field.kind {
                hir::FieldKind::Bytes { length, max_bytes, streamed, .. } => {
                    flick_check::walk::expr(length, &mut visit);
                    assert_eq!(max_bytes.is_none(), *streamed, "{:?}: bounded, or streamed", field.name);
                }
                hir::FieldKind::Var { parse, .. }
                | hir::FieldKind::Flag { parse, .. }
                | hir::FieldKind::TextVar { parse, .. } => flick_check::walk::expr(parse, &mut visit),
                hir::FieldKind::List(list) => {
                    visit_row(&list.body, &mut visit);
                    match &list.end {
                        hir::ListEnd::Count(end)
                        | hir::ListEnd::Bytes(end)
                        | hir::ListEnd::Children(end)
                        | hir::ListEnd::Last(end) => flick_check::walk::expr(end, &mut visit),
                        hir::ListEnd::Until(end) => assert!(!end.is_empty()),
                    }
                    assert!(list.streamed || list.max.is_some(), "{:?}: bounded, or streamed", field.name);
                }
                kind => {
                    if let Some(hir::Derived::Expr(expr)) = kind.derived() {
                        flick_check::walk::expr(expr, &mut visit);
                    }
                }
            }
        }
    }
}

/// Calls `visit` on the expressions of a row, including nested rows.
fn visit_row(row: &[hir::Item], visit: &mut dyn FnMut(&hir::Expr)) {
    for item in row {
        match item {
            hir::Item::Check(check) => flick_check::walk::expr(&check.expr, visit),
            hir::Item::Switch(choice) => {
                flick_check::walk::expr(&choice.on, visit);
                choice.arms.iter().for_each(|(_, row)| visit_row(row, visit));
                choice.otherwise.iter().for_each(|row| visit_row(row, visit));
            }
            hir::Item::Field(_) | hir::Item::Literal(_) => {}
        }
    }
}

fn is_known(ty: &hir::Ty) -> bool {
    match ty {
        hir::Ty::Unknown => false,
        hir::Ty::Option(inner) | hir::Ty::List { elem: inner, .. } => is_known(inner),
        hir::Ty::Tuple(parts) => parts.iter().all(is_known),
        _ => true,
    }
}
