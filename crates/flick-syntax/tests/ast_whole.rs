//! The typed tree of `data/whole.flick`: every accessor of what the listings do not use.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use flick_syntax::ast::{
    AskAllExpr, AskExpr, AstNode, Binding, BindingKind, DefaultExpr, EventKind, EveryStmt, EvictPolicy,
    ExceptStmt, Expr, FilterExpr, FoldExpr, ForStmt, InExpr, IndexExpr, LetStmt, LocalStmt, MapEachExpr,
    NamedType, Pattern, PatternKind, RecordExpr, TupleFieldExpr, UpdateExpr,
};
use flick_syntax::{FlickLanguage, Parse, parse};

fn whole() -> Parse {
    parse(include_str!("data/whole.flick"))
}

fn text(node: &impl AstNode<Language = FlickLanguage>) -> String {
    node.syntax().text().to_string()
}

/// Returns all nodes of one type in the order of the source.
fn all<N: AstNode<Language = FlickLanguage>>() -> Vec<N> {
    whole().syntax().descendants().filter_map(N::cast).collect()
}

fn opt_text<N: AstNode<Language = FlickLanguage>>(node: Option<N>) -> String {
    node.map_or("-".to_owned(), |node| text(&node))
}

/// Prints a binding as its names.
fn names(binding: &Binding) -> String {
    match binding.kind().unwrap() {
        BindingKind::Name(name) => name.text().to_owned(),
        BindingKind::Nothing => "_".to_owned(),
        BindingKind::Parts(parts) => format!("({})", parts.iter().map(names).collect::<Vec<_>>().join(" ")),
    }
}

#[test]
fn libraries_have_names() {
    let file = whole().file();
    let uses: Vec<_> = file
        .uses()
        .map(|decl| (decl.name().unwrap().text().to_owned(), decl.alias().map(|name| name.text().to_owned())))
        .collect();
    let mc = ("memcached_binary".to_owned(), Some("mc".to_owned()));
    assert_eq!(uses, [mc, ("hadoop".to_owned(), None)]);
    let of_library: Vec<_> = all::<NamedType>()
        .iter()
        .filter_map(|ty| Some((ty.library()?, ty.name()?)))
        .map(|(l, n)| format!("{}:{}", l.text(), n.text()))
        .collect();
    assert_eq!(of_library[..2], ["mc:kind", "mc:cmd"]);
    let record = all::<RecordExpr>().remove(0);
    assert_eq!((record.library().unwrap().text(), record.name().unwrap().text()), ("mc", "point"));
    assert_eq!(record.fields().count(), 2);
}

#[test]
fn types_with_lines() {
    let file = whole().file();
    let enums: Vec<_> = file.enums().collect();
    assert_eq!(opt_text(enums[0].variants().nth(1).unwrap().value()), "5");
    assert!(!enums[0].has_braces() && enums[0].base().is_none());
    assert_eq!(opt_text(enums[1].base()), "uint8");
    let shape = file.variants().next().unwrap();
    let cases: Vec<_> =
        shape.cases().map(|case| (case.name().unwrap().text().to_owned(), opt_text(case.ty()))).collect();
    let row = |name: &str, ty: &str| (name.to_owned(), ty.to_owned());
    assert_eq!(shape.name().unwrap().text(), "shape");
    assert_eq!(cases, [row("circle", "int"), row("rect", "(int, int)"), row("nothing", "-")]);
}

#[test]
fn globals() {
    let globals: Vec<_> = whole().file().globals().collect();
    let hits = &globals[0];
    assert_eq!((hits.name().unwrap().text(), opt_text(hits.ty())), ("hits", "dict<ipv4, int>".to_owned()));
    assert_eq!(hits.props().count(), 4);
    assert_eq!(opt_text(hits.max().unwrap().entries()), "10000");
    assert_eq!(opt_text(hits.expire().unwrap().duration()), "60s");
    assert_eq!(hits.evict().unwrap().policy(), Some(EvictPolicy::Lru));
    let snapshot = hits.snapshot().unwrap();
    assert_eq!(
        (opt_text(snapshot.file()), opt_text(snapshot.every())),
        ("\"hits\"".to_owned(), "30s".to_owned())
    );
    assert_eq!(globals[1].evict().unwrap().policy(), Some(EvictPolicy::Nothing));
    assert_eq!(opt_text(globals[1].max().unwrap().entries()), "1024");
    assert_eq!(globals[2].props().count(), 0);
    assert_eq!(opt_text(globals[3].ty()), "gauge");
}

#[test]
fn state_and_events() {
    let locals: Vec<_> = all::<LocalStmt>();
    assert_eq!((opt_text(locals[0].ty()), opt_text(locals[0].value())), ("-".to_owned(), "0".to_owned()));
    assert_eq!(opt_text(locals[1].ty()), "string<64>");
    assert_eq!(opt_text(locals[1].value()), "\"\"");
    let excepts = all::<ExceptStmt>();
    assert_eq!(excepts[0].kind(), Some(EventKind::Broken));
    assert_eq!(excepts[0].event().unwrap().text(), "broken");
    assert_eq!(excepts[0].channel().unwrap().text(), "backends");
    assert_eq!(excepts[0].index().unwrap().text(), "i");
    assert_eq!(excepts[0].body().unwrap().stmts().count(), 2);
    assert_eq!(excepts[1].kind(), Some(EventKind::Closed));
    assert_eq!(excepts[1].channel().unwrap().text(), "client");
    assert!(excepts[1].index().is_none() && excepts[1].body().is_some());
    let every = all::<EveryStmt>().remove(0);
    assert_eq!((opt_text(every.interval()), every.body().unwrap().stmts().count()), ("1s".to_owned(), 1));
}

#[test]
fn every_event_has_its_kind() {
    for (word, kind) in [
        ("closed", EventKind::Closed),
        ("broken", EventKind::Broken),
        ("refused", EventKind::Refused),
        ("timed_out", EventKind::TimedOut),
        ("malformed", EventKind::Malformed),
    ] {
        let parse = parse(&format!("proc P: (a/b c)\n  | c => c\n  except {word} c: log(1)\n"));
        assert_eq!(parse.errors(), []);
        let except = parse.syntax().descendants().find_map(ExceptStmt::cast).unwrap();
        assert_eq!(except.kind(), Some(kind));
    }
}

#[test]
fn names_for_parts() {
    let lets = all::<LetStmt>();
    assert_eq!(names(&lets[0].binding().unwrap()), "(a b)");
    assert!(lets[0].name().is_none());
    assert_eq!(names(&lets[1].binding().unwrap()), "(c (d _))");
    assert_eq!(lets[2].name().unwrap().text(), "size");
}

#[test]
fn patterns_bind() {
    let patterns: Vec<_> = all::<Pattern>()
        .iter()
        .map(|pattern| {
            let kind = match pattern.kind().unwrap() {
                PatternKind::Name(name) => name.text().to_owned(),
                PatternKind::Qualified(owner, name) => format!("{}.{}", owner.text(), name.text()),
                other => format!("{other:?}"),
            };
            let library = pattern.library().map(|name| format!("{}:", name.text())).unwrap_or_default();
            let binding =
                pattern.binding().map(|binding| format!(" {}", names(&binding))).unwrap_or_default();
            format!("{library}{kind}{binding}")
        })
        .collect();
    assert_eq!(
        patterns[..6],
        ["circle r", "rect (w h)", "shape.nothing", "mc:shape.other", "some v", "none"]
    );
    let rect = &all::<Pattern>()[1];
    assert_eq!(&include_str!("data/whole.flick")[rect.path_range()], "rect");
}

#[test]
fn parts_and_slices() {
    let slices: Vec<_> = all::<IndexExpr>()
        .iter()
        .filter_map(IndexExpr::slice)
        .map(|range| format!("{} {}", opt_text(range.start()), opt_text(range.end())))
        .collect();
    assert_eq!(slices, ["- 2", "a + 1 len(req.key)", "a -"]);
    let positions: Vec<_> = all::<TupleFieldExpr>().iter().map(|field| field.position().unwrap()).collect();
    assert_eq!(positions, [0, 1, 0]); // the outer one of `t.1.0` comes first
    let defaults = all::<DefaultExpr>();
    assert_eq!(
        (opt_text(defaults[0].value()), opt_text(defaults[0].default())),
        ("hits[peer(client)]".to_owned(), "0".to_owned())
    );
}

#[test]
fn else_groups_to_the_right() {
    let parse = parse("fun f: () -> ()\n  a else b else c\n");
    let default = parse.syntax().descendants().find_map(DefaultExpr::cast).unwrap();
    assert_eq!(
        (opt_text(default.value()), opt_text(default.default())),
        ("a".to_owned(), "b else c".to_owned())
    );
}

#[test]
fn membership() {
    let rows: Vec<_> = all::<InExpr>()
        .iter()
        .map(|test| {
            format!(
                "{} {} {}",
                opt_text(test.subject()),
                opt_text(test.collection()),
                test.patterns().count()
            )
        })
        .collect();
    assert_eq!(rows, ["a names 0", "b + 1 [b, c] 0", "d - 2"]);
}

#[test]
fn repetitions() {
    let each = all::<ForStmt>().remove(0);
    assert_eq!(each.name().unwrap().text(), "i");
    assert!(matches!(each.iterable(), Some(Expr::Range(range)) if opt_text(range.end()) == "len(backends)"));
    let folds = all::<FoldExpr>();
    let row = |fold: &FoldExpr| {
        let (name, accumulator) = (fold.name().unwrap(), fold.accumulator().unwrap());
        format!(
            "{} {} {} {}",
            name.text(),
            opt_text(fold.iterable()),
            accumulator.text(),
            opt_text(fold.start())
        )
    };
    assert_eq!(row(&folds[0]), "b backends sum 0");
    assert_eq!(row(&folds[1]), "x [1, 2, 3] best none");
    assert!(folds.iter().all(|fold| fold.body().is_some()));
    let map = all::<MapEachExpr>().remove(0);
    assert_eq!(
        (map.name().unwrap().text(), opt_text(map.iterable())),
        ("x", "split(req.key, \":\", 8)".to_owned())
    );
    let filter = all::<FilterExpr>().remove(0);
    assert_eq!((filter.name().unwrap().text(), opt_text(filter.iterable())), ("b", "0..8".to_owned()));
    assert!(map.body().is_some() && filter.body().is_some());
}

#[test]
fn asks() {
    let asks = all::<AskExpr>();
    assert_eq!(opt_text(asks[0].channel()), "backends[0]");
    assert_eq!(opt_text(asks[0].message()), "(req with opaque = 7)");
    assert_eq!(opt_text(asks[0].timeout()), "50ms");
    assert!(matches!(asks[0].else_value(), Some(Expr::Ask(_))));
    assert_eq!(opt_text(asks[1].timeout()), "5min");
    assert_eq!(opt_text(asks[1].else_value()), "none");
    let all_of = all::<AskAllExpr>();
    assert!(all_of[0].is_list() && all_of[0].channels().is_none() && all_of[0].message().is_none());
    let items: Vec<_> =
        all_of[0].items().map(|item| (opt_text(item.channel()), opt_text(item.message()))).collect();
    assert_eq!(items[1], ("backends[1]".to_owned(), "req".to_owned()));
    assert_eq!((items.len(), opt_text(all_of[0].timeout())), (2, "1h".to_owned()));
    assert!(!all_of[1].is_list() && all_of[1].timeout().is_none());
    assert_eq!(
        (opt_text(all_of[1].channels()), opt_text(all_of[1].message())),
        ("backends".to_owned(), "req".to_owned())
    );
    assert!(all_of[2].is_each() && all_of[2].is_list() && !all_of[0].is_each());
    assert_eq!(all_of[2].each_name().unwrap().text(), "i");
    assert_eq!(
        (opt_text(all_of[2].each_of()), opt_text(all_of[2].items().next().unwrap().channel())),
        ("0..3".to_owned(), "backends[i]".to_owned())
    );
    assert_eq!(opt_text(all_of[2].timeout()), "1s");
}

#[test]
fn ask_all_of_a_channel_called_all() {
    let parse = parse("fun f: () -> ()\n  ask all[0] with m\n  ask all with m\n");
    assert_eq!(parse.errors(), []);
    let channels: Vec<_> =
        parse.syntax().descendants().filter_map(AskExpr::cast).map(|ask| opt_text(ask.channel())).collect();
    assert_eq!(channels, ["all[0]", "all"]);
}

#[test]
fn updates() {
    let update = all::<UpdateExpr>().remove(1);
    assert!(matches!(update.target(), Some(Expr::Index(_))));
    assert_eq!(update.value_name().unwrap().text(), "old");
    assert_eq!(update.body().unwrap().stmts().count(), 2);
}

#[test]
fn words_of_the_whole_language_are_names_elsewhere() {
    for word in [
        "ask", "all", "update", "except", "every", "some", "max", "entries", "expire", "evict", "snapshot",
        "timeout", "filter", "map", "variant", "enum", "record", "as", "closed", "lru", "in", "from",
    ] {
        let source = format!(
            "type {word}: record\n  {word} : int\nfun {word}: ({word}: int) -> (int)\n  let {word} = {word} + 1\n  {word} => c\n  {word} := 2\n  f({word}, {word}.{word})\n  {word}\n"
        );
        assert_eq!(parse(&source).errors(), [], "{source}");
    }
}

#[test]
fn defaults_inside_an_inline_if() {
    for line in [
        "let y = if x: d[k] else 0 else: 1",
        "if x: d[k] := e else 0",
        "if x: f(d[k] else 0)",
        "if x: let y = d[k] else 0",
        "if d[k] else true: f(x)",
        "if x: update d[k] from v: v else 0",
        "if x:\n    d[k] else 0",
        "if x: d[k] else 0\n  else: 1",
        "let y = if x: 1 else: d[k] else 0",
        "(if x: (d[k] else 0)) => c",
        "if x: (d[k] else e) => c",
    ] {
        assert_eq!(parse(&format!("fun f: () -> ()\n  {line}\n")).errors(), [], "{line}");
    }
}
