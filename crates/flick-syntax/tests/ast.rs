//! The typed tree: every accessor on a program that has what it asks for, and on programs that have not.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use flick_syntax::ast::{AstNode, BinaryOp, Decl, Expr, PatternKind, Stmt, Type, UnaryOp, UnitItem};
use flick_syntax::{LiteralValue, parse};

/// Returns the text of a node.
fn text(node: &impl AstNode<Language = flick_syntax::FlickLanguage>) -> String {
    node.syntax().text().to_string()
}

fn texts<N: AstNode<Language = flick_syntax::FlickLanguage>>(nodes: impl Iterator<Item = N>) -> Vec<String> {
    nodes.map(|node| text(&node)).collect()
}

fn stmts(body: &str) -> Vec<Stmt> {
    let indented: String = body.lines().map(|line| format!("  {line}\n")).collect();
    let parse = parse(&format!("fun f: () -> ()\n{indented}"));
    assert_eq!(parse.errors(), [], "{body}");
    parse.file().funs().next().unwrap().body().unwrap().stmts().collect()
}

fn expr(source: &str) -> Expr {
    match stmts(source).remove(0) {
        Stmt::Expr(stmt) => stmt.expr().unwrap(),
        other => panic!("{other:?} is no expression"),
    }
}

/// Prints an expression with all its groups.
fn grouped(expr: Expr) -> String {
    match expr {
        Expr::Binary(e) => {
            format!("({} {:?} {})", grouped(e.left().unwrap()), e.op().unwrap(), grouped(e.right().unwrap()))
        }
        Expr::Unary(e) => format!("({:?} {})", e.op().unwrap(), grouped(e.operand().unwrap())),
        Expr::With(e) => format!("({} with {:?})", grouped(e.base().unwrap()), texts(e.fields())),
        other => text(&other),
    }
}

#[test]
fn operators_group_by_precedence() {
    let check = |source: &str, expected: &str| assert_eq!(grouped(expr(source)), expected);
    check("a - b - c", "((a Sub b) Sub c)");
    check("a + b * c mod d", "(a Add ((b Mul c) Mod d))");
    check("a or b and not c == d + 1", "(a Or (b And (Not (c Equal (d Add 1)))))");
    check("-a.b * f(c)[0]", "((Neg a.b) Mul f(c)[0])");
    check("a with b = c or d, e = 1", "(a with [\"b = c or d\", \"e = 1\"])");
    check("a <= b", "(a LessEqual b)");
    check("(a + b) * c", "((a + b) Mul c)");
}

#[test]
fn declarations() {
    let parse = parse(include_str!("data/slice.flick"));
    let file = parse.file();
    let kinds: Vec<_> = file
        .decls()
        .map(|decl| format!("{decl:?}").chars().take_while(|c| *c != '(').collect::<String>())
        .collect();
    assert_eq!(kinds, ["Use", "Enum", "Unit", "Record", "Proc", "Proc", "Fun"]);
    assert_eq!(file.uses().next().unwrap().name().unwrap().text(), "memcached_binary");
    let op = file.enums().next().unwrap();
    assert_eq!((op.name().unwrap().text(), text(&op.base().unwrap())), ("op", "uint8".to_owned()));
    assert_eq!(texts(op.variants()), ["get = 0x00", "getk", "set = 1"]);
    assert_eq!(text(&op.variants().next().unwrap().value().unwrap()), "0x00");
    let on = file.units().next().unwrap().properties().next().unwrap();
    assert_eq!((on.name().unwrap().text(), on.qualifier().unwrap().text()), ("on", "unavailable"));
    assert!(matches!(on.value(), Some(Expr::Record(record)) if record.fields().count() == 2));
    let fields: Vec<_> = file.records().next().unwrap().fields().map(|field| field.ty().unwrap()).collect();
    assert!(matches!(&fields[0], Type::Named(ty) if text(&ty.size().unwrap()) == "250"));
    assert!(matches!(&fields[1], Type::Named(ty) if texts(ty.args()) == ["string<8>", "[uint16]<64>"]));
    assert!(matches!(&fields[2], Type::Tuple(ty) if texts(ty.items()) == ["int", "option<string>"]));
    let fun = file.funs().next().unwrap();
    assert_eq!(texts(fun.results()), ["int", "bool"]);
    assert!(fun.params().all(|param| param.channel().is_none() && param.ty().is_some()));
}

#[test]
fn channels() {
    let parse = parse(include_str!("data/slice.flick"));
    let channels: Vec<_> = parse.file().procs().next().unwrap().params().collect();
    let ends = channels.iter().map(|param| {
        assert!(param.ty().is_none());
        let channel = param.channel().unwrap();
        let side = |ty: Option<Type>| ty.map_or("-".to_owned(), |ty| text(&ty));
        (
            param.name().unwrap().text().to_owned(),
            channel.is_array(),
            side(channel.input()),
            side(channel.output()),
        )
    });
    let row = |name: &str, is_array, input: &str, output: &str| {
        (name.to_owned(), is_array, input.to_owned(), output.to_owned())
    };
    assert_eq!(
        ends.collect::<Vec<_>>(),
        [row("x", false, "a", "b"), row("ys", true, "-", "b"), row("zs", true, "b", "-")]
    );
}

#[test]
fn grammar_of_listing_2() {
    let parse = parse(include_str!("data/listing2.flick"));
    let unit = parse.file().units().next().unwrap();
    let names: Vec<_> = unit.fields().map(|field| field.name().map(|name| name.text().to_owned())).collect();
    assert_eq!(names[3..6], [Some("extras_len".to_owned()), None, Some("status_or_v_bucket".to_owned())]);
    let var = unit.vars().next().unwrap();
    assert_eq!(var.name().unwrap().text(), "value_len");
    let attrs: Vec<_> = var.attrs().collect();
    assert!(attrs[0].target().is_none());
    assert!(matches!(attrs[0].value(), Some(Expr::Binary(_))));
    assert_eq!(text(&attrs[1].target().unwrap()), "self.total_len");
    assert_eq!(text(&attrs[1].value().unwrap()).split_whitespace().last(), Some("$$"));
    assert!(matches!(unit.items().next(), Some(UnitItem::Property(_))));
    assert!(matches!(parse.file().decls().next(), Some(Decl::Unit(_))));
}

#[test]
fn statements() {
    let listing = parse(include_str!("data/listing3.flick"));
    let body = listing.file().procs().next().unwrap().body().unwrap();
    let Some(Stmt::If(choice)) = body.stmts().next() else { panic!("an `if`") };
    let branch = choice.branches().next().unwrap();
    assert!(choice.else_body().is_none());
    assert_eq!(text(&branch.condition().unwrap().unparenthesised().unwrap()), "all_ready(mappers)");
    let Some(Stmt::Let(result)) = branch.body().unwrap().stmts().next() else { panic!("a `let`") };
    let Some(Expr::Foldt(foldt)) = result.value() else { panic!("a `foldt`") };
    assert_eq!(text(&foldt.channels().unwrap()), "mappers");
    let names = [foldt.element(), foldt.left(), foldt.right(), foldt.key_name()]
        .map(|name| name.unwrap().text().to_owned());
    assert_eq!(names, ["elem", "e1", "e2", "e_key"]);
    assert_eq!(text(&foldt.key().unwrap()), "elem.key");
    assert_eq!(foldt.body().unwrap().stmts().count(), 2);

    let parse = parse(include_str!("data/slice.flick"));
    let proc = parse.file().procs().nth(1).unwrap();
    let stmts: Vec<_> = proc.body().unwrap().stmts().collect();
    assert!(matches!(&stmts[0], Stmt::Local(l) if l.name().unwrap().text() == "count"));
    let Stmt::Rule(rule) = &stmts[1] else { panic!("a rule") };
    assert!(
        matches!(rule.stmt(), Some(Stmt::Chain(c)) if texts(c.stages()) == ["x", "f(ys)", "g(count)", "x"])
    );
    assert!(matches!(&stmts[3], Stmt::Assign(a) if text(&a.value().unwrap()) == "count + 1"));
}

#[test]
fn switch_patterns() {
    let parse = parse(include_str!("data/slice.flick"));
    let body = parse.file().funs().next().unwrap().body().unwrap();
    let switch = body.stmts().find_map(|stmt| match stmt {
        Stmt::Let(stmt) => match stmt.value() {
            Some(Expr::Switch(switch)) => Some(switch),
            _ => None,
        },
        _ => None,
    });
    let switch = switch.unwrap();
    assert_eq!(text(&switch.subject().unwrap()), "op.of(a)");
    let kinds: Vec<_> =
        switch.arms().flat_map(|arm| arm.patterns()).map(|pattern| pattern.kind().unwrap()).collect();
    assert!(matches!(&kinds[0], PatternKind::Name(name) if name.text() == "get"));
    assert!(matches!(&kinds[1], PatternKind::Qualified(a, b) if a.text() == "op" && b.text() == "getk"));
    assert_eq!(kinds[2], PatternKind::Literal(LiteralValue::Bytes(b"quit".to_vec())));
    assert_eq!(kinds[3..], [PatternKind::Negative(7), PatternKind::Literal(LiteralValue::Bool(true))]);
    assert!(switch.else_body().is_some());
}

#[test]
fn literals() {
    let check = |source: &str, expected: LiteralValue| match expr(source) {
        Expr::Literal(literal) => assert_eq!(literal.value(), Some(expected), "{source}"),
        other => panic!("{other:?} is no literal"),
    };
    check("18_446_744_073_709_551_615", LiteralValue::Int(u64::MAX));
    check("0xFFff", LiteralValue::Int(0xffff));
    check("64KiB", LiteralValue::Size(64 * 1024));
    check("1MiB", LiteralValue::Size(1024 * 1024));
    check("50ms", LiteralValue::Duration(50_000_000));
    check("1s", LiteralValue::Duration(1_000_000_000));
    check("false", LiteralValue::Bool(false));
    check(r#""\r\n\t\\\"\x7f\xFF\0é""#, LiteralValue::Bytes(b"\r\n\t\\\"\x7f\xff\0\xc3\xa9".to_vec()));
}

#[test]
fn ranges_exclude_white_space_and_comments() {
    let source = "# before\n\nuse  raw   # behind\n\n";
    let file = parse(source).file();
    let decl = file.uses().next().unwrap();
    assert_eq!(&source[decl.range()], "use  raw");
    assert_eq!(&source[decl.name().unwrap().range()], "raw");
}

#[test]
fn operators_of_other_languages_mean_what_they_say() {
    let parse = parse("fun f: () -> ()\n  if !a && b % c = d: x\n");
    let body = parse.file().funs().next().unwrap().body().unwrap();
    let Some(Stmt::If(choice)) = body.stmts().next() else { panic!("an `if`") };
    let Some(Expr::Binary(and)) = choice.branches().next().unwrap().condition() else { panic!("an `and`") };
    assert_eq!(and.op(), Some(BinaryOp::And));
    assert!(matches!(and.left(), Some(Expr::Unary(not)) if not.op() == Some(UnaryOp::Not)));
    let Some(Expr::Binary(equal)) = and.right() else { panic!("a comparison") };
    assert_eq!(equal.op(), Some(BinaryOp::Equal));
    assert!(matches!(equal.left(), Some(Expr::Binary(rest)) if rest.op() == Some(BinaryOp::Mod)));
}

#[test]
fn incomplete_programs_have_incomplete_trees() {
    let parse = parse("type\nuse\nproc :\nfun f\n  let\n  let x =\n  if\n  switch\n  => x\n  a[\n");
    assert!(!parse.errors().is_empty());
    assert!(parse.file().uses().all(|decl| decl.name().is_none()));
    let fun = parse.file().funs().next().unwrap();
    assert_eq!(fun.params().count(), 0);
    assert!(
        fun.body().unwrap().stmts().any(|stmt| matches!(stmt, Stmt::Let(stmt) if stmt.value().is_none()))
    );
}
