//! The typed tree of `data/grammar.flick`: every accessor of the parts of a grammar.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use flick_syntax::ast::{
    AstNode, ClassItemKind, FieldInit, File, NamedType, UnitItem, UnitLiteral, UnitSwitch,
};
use flick_syntax::{FlickLanguage, parse};

fn file() -> File {
    parse(include_str!("data/grammar.flick")).file()
}

fn text(node: impl AstNode<Language = FlickLanguage>) -> String {
    node.syntax().text().to_string()
}

fn opt_text<N: AstNode<Language = FlickLanguage>>(node: Option<N>) -> String {
    node.map_or("-".to_owned(), text)
}

/// Returns all nodes of one type in the order of the source.
fn all<N: AstNode<Language = FlickLanguage>>() -> Vec<N> {
    file().syntax().descendants().filter_map(N::cast).collect()
}

fn class(name: &str) -> (bool, Vec<String>) {
    let class = file().classes().find(|class| class.name().unwrap().text() == name).unwrap();
    let members = class.items().map(|item| match item.kind().unwrap() {
        ClassItemKind::Bytes(bytes) => format!("{bytes:?}"),
        ClassItemKind::Range(first, last) => format!("{first:?}..{last:?}"),
        ClassItemKind::Class(name) => {
            format!(
                "{}:{}",
                item.library().map_or("-".to_owned(), |name| name.text().to_owned()),
                name.text()
            )
        }
    });
    (class.is_complement(), members.collect())
}

#[test]
fn classes_have_members() {
    let (is_complement, members) = class("tchar");
    assert!(!is_complement);
    assert_eq!(members[..3], ["[97]..[122]", "[65]..[90]", "[48]..[57]"]);
    assert!(members[3].starts_with("[33, 35, 36"));
    assert_eq!(class("vchar"), (true, ["[0]..[8]", "[10]..[31]", "h:delete"].map(str::to_owned).into()));
}

#[test]
fn units_have_parameters_and_are_given_values() {
    let unit = file().units().next().unwrap();
    let params: Vec<_> = unit
        .params()
        .map(|param| (param.name().unwrap().text().to_owned(), text(param.ty().unwrap())))
        .collect();
    assert_eq!(params, [("limit", "uint32"), ("last", "bool")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    let given: Vec<Vec<String>> = all::<NamedType>()
        .iter()
        .filter(|ty| ty.name().unwrap().text() == "chunk")
        .map(|ty| ty.values().map(text).collect())
        .collect();
    assert_eq!(given, [["100", "self.minor == 1"], ["1 + 2", "true"]]);
}

#[test]
fn items_are_of_every_kind_and_in_order() {
    let unit = file().units().nth(1).unwrap();
    let kinds = unit.items().map(|item| match item {
        UnitItem::Property(_) => '%',
        UnitItem::Field(_) => 'f',
        UnitItem::Var(_) => 'v',
        UnitItem::Literal(_) => '"',
        UnitItem::Bits(_) => 'b',
        UnitItem::Check(_) => 'c',
        UnitItem::Switch(_) => 's',
    });
    assert_eq!(kinds.collect::<String>(), "%%%%f\"f\"f\"\"ffvvvccbbfsfff");
}

#[test]
fn literals_have_bytes_and_attributes() {
    let literals: Vec<_> = all::<UnitLiteral>()
        .iter()
        .map(|literal| {
            let attrs = literal.attrs().map(|attr| attr.name().unwrap().text().to_owned());
            (literal.bytes().unwrap(), attrs.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(literals[3], (b"HTTP/1.".to_vec(), "nocase".to_owned()));
    assert_eq!(literals[4], (b"\r".to_vec(), "optional".to_owned()));
}

#[test]
fn bits_and_checks() {
    let unit = file().units().nth(1).unwrap();
    let mut seen = Vec::new();
    for item in unit.items() {
        match item {
            UnitItem::Bits(bits) => {
                let fields = bits.fields().map(|field| {
                    let name = field.name().map_or("-".to_owned(), |name| name.text().to_owned());
                    format!("{name}:{}/{}", text(field.width().unwrap()), field.attrs().count())
                });
                seen.push(format!(
                    "{} {}",
                    text(bits.width().unwrap()),
                    fields.collect::<Vec<_>>().join(" ")
                ));
            }
            UnitItem::Check(check) => {
                let fault = check.attrs().find_map(|attr| attr.value());
                seen.push(format!("{} {}", text(check.condition().unwrap()), opt_text(fault)));
            }
            _ => {}
        }
    }
    assert_eq!(
        seen,
        [
            "not (self.upgrades and self.length > 0) -",
            "self.minor <= 1 unsupported",
            "16 version:4/1 ihl:4/0 -:8/0",
            "8 a:1/0 bcd:7/0"
        ]
    );
}

#[test]
fn switches_have_cases() {
    let switches = all::<UnitSwitch>();
    let seen: Vec<_> = switches
        .iter()
        .map(|switch| {
            let arms = switch.arms().map(|arm| {
                let patterns: Vec<_> = arm.patterns().map(text).collect();
                format!("{}:{}", patterns.join(","), arm.items().count())
            });
            let otherwise = switch.otherwise().map_or("-".to_owned(), |arm| arm.items().count().to_string());
            format!("{} {} {otherwise}", text(switch.subject().unwrap()), arms.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(
        seen,
        ["self.size 0:1 1", "self.target \"*\",\"/\":0 h.kind.get,post,-1,true:2 0x10:1 1", "self.ihl 5:1 -"]
    );
}

#[test]
fn keys_are_set_in_a_with() {
    let inits: Vec<_> = all::<FieldInit>()
        .into_iter()
        .map(|init| (init.name().unwrap().text().to_owned(), opt_text(init.key()), opt_text(init.value())))
        .map(|(name, key, value)| format!("{name}[{key}] = {value}"))
        .collect();
    assert_eq!(
        inits[2..6],
        [
            "headers[\"x-a\"] = \"v\"",
            "minor[-] = 2",
            "headers[\"b\"] = none",
            "headers[\"x-a\"] = req.headers[\"x-b\"] else \"\"",
        ]
    );
}
