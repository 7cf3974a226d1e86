//! The page: what the file says about itself, its declarations in their order, the text at the end.

use flick_syntax::ast::{AstNode, ClassDecl, Decl, EnumDecl, File, FunDecl, UnitDecl};
use flick_syntax::{LiteralValue, SyntaxKind, parse};

use crate::classes;
use crate::comments::Comments;
use crate::facts::facts;
use crate::fields::tables;
use crate::html::{code, code_of, escape, one_line, prose, sentence, source};
use crate::picture::picture;
use crate::scope::{Scope, name_of, range_of, sort_of};
use crate::shape::shapes;

/// Style sheet, which is part of the page so that it needs no other file.
const STYLE: &str = include_str!("style.css");

/// Writes the page of the file called `name`.
///
/// Shape:  `text` is best one that the checker accepts; `load` gives the text of a library that it uses.
/// Cost:   a small multiple of the text, and of those of its libraries.
pub fn page(name: &str, text: &str, load: &dyn Fn(&str) -> Option<String>) -> String {
    let parsed = parse(text);
    let root = parsed.syntax();
    let tokens = root.descendants_with_tokens().filter_map(|element| element.into_token());
    let comments = tokens
        .filter(|token| token.kind() == SyntaxKind::Comment)
        .map(|token| usize::from(token.text_range().start())..usize::from(token.text_range().end()));
    let comments = Comments::of(text, comments);
    let scope = Scope::of(parsed.file(), load);
    let mut out = String::new();
    out.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.push_str(&format!("<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n", escape(name)));
    out.push_str(&format!("<header>\n<h1>{}</h1>\n{}</header>\n", escape(name), prose(&comments.intro())));
    out.push_str(&contents(&scope.file));
    out.push_str("<main>\n");
    for decl in scope.file.decls() {
        section(&scope, &comments, &decl, &mut out);
    }
    out.push_str("</main>\n");
    out.push_str(&format!(
        "<details>\n<summary>The text</summary>\n<pre>{}</pre>\n</details>\n</body>\n</html>\n",
        source(&root)
    ));
    out
}

/// Lists what the page speaks of.
fn contents(file: &File) -> String {
    let mut out = "<nav>\n<ul>\n".to_owned();
    for decl in file.decls() {
        if let Some(name) = name_of(&decl) {
            let name = escape(&name);
            out.push_str(&format!(
                "<li><a href=\"#{name}\">{name}</a> <small>{}</small></li>\n",
                sort_of(&decl)
            ));
        }
    }
    out.push_str("</ul>\n</nav>\n");
    out
}

fn section(scope: &Scope, comments: &Comments, decl: &Decl, out: &mut String) {
    let Some(name) = name_of(decl) else { return };
    let id = escape(&name);
    let parameters = match decl {
        Decl::Unit(unit) => {
            let parameters: Vec<String> = unit.params().map(|param| one_line(&param)).collect();
            if parameters.is_empty() { String::new() } else { format!("({})", parameters.join(", ")) }
        }
        _ => String::new(),
    };
    out.push_str(&format!(
        "<section id=\"{id}\">\n<h2><a href=\"#{id}\">{id}</a>{} <small>{}</small></h2>\n",
        escape(&parameters),
        sort_of(decl)
    ));
    let range = range_of(decl);
    out.push_str(&prose(&comments.above(range.start)));
    match decl {
        Decl::Unit(unit) => unit_body(scope, comments, &name, unit, out),
        Decl::Enum(decl) => enum_body(scope, comments, decl, out),
        Decl::Class(class) => class_body(scope, comments, &name, class, out),
        Decl::Fun(fun) => out.push_str(&format!("<pre>{}</pre>\n", escape(&heading(fun)))),
        _ => out.push_str(&format!("<pre>{}</pre>\n", source(decl.syntax()))),
    }
    out.push_str("</section>\n");
}

fn unit_body(scope: &Scope, comments: &Comments, name: &str, unit: &UnitDecl, out: &mut String) {
    out.push_str("<div class=\"picture\">\n");
    out.push_str(&picture(&shapes(scope, name, unit.items())));
    out.push_str("</div>\n");
    out.push_str(&tables(scope, comments, unit));
    out.push_str(&facts(unit, comments));
}

fn class_body(scope: &Scope, comments: &Comments, name: &str, class: &ClassDecl, out: &mut String) {
    let said = sentence(&comments.beside(class.range().end..class.range().end));
    if !said.is_empty() {
        out.push_str(&format!("<p>{said}</p>\n"));
    }
    out.push_str(&classes::chart(&scope.bytes_of(name)));
}

fn enum_body(scope: &Scope, comments: &Comments, decl: &EnumDecl, out: &mut String) {
    if let Some(base) = decl.base() {
        out.push_str(&format!("<p>Carried in {}. Other values pass through.</p>\n", scope.type_link(&base)));
    }
    // A column that nothing stands in would only take room.
    let has_meanings = decl.variants().any(|member| !comments.about(member.range()).is_empty());
    let (class, meaning) =
        if has_meanings { ("fields", "<th scope=\"col\">Meaning</th>") } else { ("fields plain", "") };
    out.push_str(&format!(
        "<table class=\"{class}\"><thead><tr><th scope=\"col\">Name</th><th scope=\"col\">Value</th>"
    ));
    out.push_str(&format!("{meaning}</tr></thead><tbody>\n"));
    let mut next = Some(0u64);
    for member in decl.variants() {
        let Some(name) = member.name() else { continue };
        let value = match member.value() {
            Some(flick_syntax::ast::Expr::Literal(literal)) => {
                next = match literal.value() {
                    Some(LiteralValue::Int(value)) => Some(value),
                    _ => None,
                };
                code(&one_line(&literal))
            }
            Some(value) => {
                next = None;
                code_of(&value)
            }
            None => next.map_or(String::new(), |value| code(&value.to_string())),
        };
        next = next.and_then(|value| value.checked_add(1));
        let meaning = match has_meanings {
            true => format!("<td>{}</td>", sentence(&comments.about(member.range()))),
            false => String::new(),
        };
        let name = escape(name.text());
        out.push_str(&format!("<tr><th scope=\"row\">{name}</th><td>{value}</td>{meaning}</tr>\n"));
    }
    out.push_str("</tbody></table>\n");
}

/// Returns a function without its body.
fn heading(fun: &FunDecl) -> String {
    let whole = fun.syntax().text().to_string();
    let start = fun.range().start;
    let end = fun.result_list().map_or(whole.len(), |results| results.range().end - start);
    whole[..end].to_owned()
}
