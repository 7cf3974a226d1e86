//! Circles of imports among the modules of a crate, computed from its sources.
//! Promises: `use` declarations and paths that start with `crate` or `super` count, re-exports are followed; a module
//! is compared with its siblings together with its descendants, so that two folders that use each other are a circle. A
//! module and its descendants may use each other. Tests do not count.
//! Not here: methods called on a type that another module defines; glob re-exports.

use std::collections::{BTreeMap, BTreeSet};

use super::files::{Finding, Text};
use super::source::{self, Source};

/// The crates that are checked.
const CRATES: &[&str] = &["crates/flick-runtime", "crates/flick-check"];
/// Most re-exports followed from one path.
const HOPS_MAX: usize = 8;

/// A module, by the names from the crate's root.
type Module = Vec<String>;

/// Pairs of children of a module of which the first uses the second, with the first line that does.
type Uses<'a> = BTreeMap<(&'a str, &'a str), (&'a Text, usize)>;

/// One use of a module by another.
struct Edge<'a> {
    from: Module,
    to: Module,
    text: &'a Text,
    line: usize,
}

/// Fails for modules that import each other, directly or through others.
pub fn no_import_circles(texts: &[Text]) -> Vec<Finding> {
    CRATES.iter().flat_map(|krate| circles(&Source::below(texts, &format!("{krate}/src")))).collect()
}

/// The circles of one crate: one finding per group of siblings, with the shortest circle.
fn circles(sources: &[Source<'_>]) -> Vec<Finding> {
    let tree = Tree::new(sources);
    let mut siblings: BTreeMap<Module, Uses<'_>> = BTreeMap::new();
    let edges = tree.edges(sources);
    for edge in &edges {
        let common = edge.from.iter().zip(&edge.to).take_while(|(a, b)| a == b).count();
        // One of them is an ancestor of the other.
        if common == edge.from.len() || common == edge.to.len() {
            continue;
        }
        let group = siblings.entry(edge.from[..common].to_vec()).or_default();
        group.entry((&edge.from[common], &edge.to[common])).or_insert((edge.text, edge.line));
    }
    let mut findings = Vec::new();
    for (parent, group) in &siblings {
        let mut open: BTreeSet<&str> = group.keys().map(|(from, _)| *from).collect();
        while let Some(circle) =
            open.iter().filter_map(|start| shortest_circle(group, start, &open)).min_by_key(Vec::len)
        {
            let hops = circle.iter().zip(circle.iter().cycle().skip(1));
            let shown: Vec<String> = hops
                .map(|(from, to)| {
                    let (text, line) = group[&(*from, *to)];
                    format!("{from} uses {to} ({}:{line})", text.path)
                })
                .collect();
            let (text, line) = group[&(circle[0], circle[1 % circle.len()])];
            let at =
                if parent.is_empty() { "the crate".to_owned() } else { format!("`{}`", parent.join("::")) };
            findings.push(
                text.finding(line, format!("modules of {at} import in a circle: {}", shown.join(", "))),
            );
            // The next circle is one without this one's first module.
            open.remove(circle[0]);
        }
    }
    findings
}

/// The shortest route from `start` back to it through modules of `open`.
fn shortest_circle<'a>(group: &Uses<'a>, start: &'a str, open: &BTreeSet<&'a str>) -> Option<Vec<&'a str>> {
    let mut routes = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while !routes.is_empty() {
        let mut longer = Vec::new();
        for route in &routes {
            let last = route[route.len() - 1];
            for (_, to) in group.keys().filter(|(from, _)| *from == last) {
                if *to == start {
                    return Some(route.clone());
                }
                if open.contains(to) && seen.insert(*to) {
                    longer.push([route.as_slice(), &[*to]].concat());
                }
            }
        }
        routes = longer;
    }
    None
}

/// The modules of a crate and what their names stand for.
struct Tree {
    modules: BTreeSet<Module>,
    /// By module: names that a `use` brings into it, and their paths.
    names: BTreeMap<Module, BTreeMap<String, Module>>,
}

/// A path in a source: where it starts, and its names from the crate's root.
struct Path {
    at: usize,
    /// The name that a `use` gives it; none in an expression.
    name: Option<String>,
    names: Module,
}

impl Tree {
    fn new(sources: &[Source<'_>]) -> Self {
        let files = sources.iter().map(|source| module_of(&source.text.path));
        let modules =
            files.flat_map(|file| (0..=file.len()).map(move |depth| file[..depth].to_vec())).collect();
        let mut tree = Self { modules, names: BTreeMap::new() };
        for source in sources {
            let module = module_of(&source.text.path);
            let named = paths(source, &module).into_iter().chain(relative_uses(source, &module));
            let names = named.filter_map(|path| Some((path.name?, path.names))).collect();
            tree.names.insert(module, names);
        }
        tree
    }

    fn edges<'a>(&self, sources: &[Source<'a>]) -> Vec<Edge<'a>> {
        let mut edges = Vec::new();
        for source in sources {
            let from = module_of(&source.text.path);
            for path in paths(source, &from) {
                let to = self.resolve(&path.names, HOPS_MAX);
                edges.push(Edge { from: from.clone(), to, text: source.text, line: source.line(path.at) });
            }
        }
        edges
    }

    /// The module that a path leads into, re-exports followed.
    fn resolve(&self, names: &[String], hops: usize) -> Module {
        let mut module = Module::new();
        for (index, name) in names.iter().enumerate() {
            let below = [module.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains(&below) {
                module = below;
                continue;
            }
            let alias = self.names.get(&module).and_then(|names| names.get(name));
            return match alias {
                Some(path) if hops > 0 => {
                    self.resolve(&[path.as_slice(), &names[index + 1..]].concat(), hops - 1)
                }
                _ => module,
            };
        }
        module
    }
}

/// The module of a file: `crates/a/src/b/c.rs` is `b::c`.
fn module_of(path: &str) -> Module {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside).trim_end_matches(".rs");
    let names = inside.split('/').filter(|name| !matches!(*name, "lib" | "main" | "mod"));
    names.map(str::to_owned).collect()
}

/// All paths of a source that start with `crate` or `super`.
fn paths(source: &Source<'_>, module: &[String]) -> Vec<Path> {
    let code = source.code.as_str();
    let mut found = Vec::new();
    for keyword in ["crate", "super"] {
        for at in source.words(keyword) {
            let before = code[..at].trim_end();
            // `super` inside a path was read with the path's start; `pub(super)` is no path.
            if before.ends_with("::") || !code[at + keyword.len()..].trim_start().starts_with("::") {
                continue;
            }
            let is_use = !source::whole_words(statement_before(code, at), "use").is_empty();
            let inline = inline_modules(code, at);
            let mut here: Module = module.to_vec();
            here.extend(inline);
            let mut names = Vec::new();
            read_path(&code[at..], is_use, &mut Vec::new(), &mut names);
            for (name, path) in names {
                if let Some(names) = absolute(&here, &path) {
                    found.push(Path { at, name: is_use.then_some(name), names });
                }
            }
        }
    }
    found
}

/// `use child::Name` of a module's own children, which re-exports are written with.
fn relative_uses(source: &Source<'_>, module: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    for at in source.words("use") {
        let rest = &source.code[at + 3..];
        let first = source::identifier(rest.trim_start());
        if matches!(first, "" | "crate" | "super") {
            continue;
        }
        let mut names = Vec::new();
        read_path(rest.trim_start(), true, &mut Vec::new(), &mut names);
        for (name, path) in names {
            let path = if path[0] == "self" { &path[1..] } else { &path[..] };
            found.push(Path { at, name: Some(name), names: [module, path].concat() });
        }
    }
    found
}

/// Returns the part of the statement before `at`.
fn statement_before(code: &str, at: usize) -> &str {
    let start = code[..at].rfind([';', '}']).map_or(0, |end| end + 1);
    &code[start..at]
}

/// Names of the inline modules around `at`.
fn inline_modules(code: &str, at: usize) -> Module {
    let before = source::whole_words(&code[..at], "mod");
    let around = before.into_iter().filter_map(|start| {
        let rest = code[start + 3..].trim_start();
        let name = source::identifier(rest);
        let open = start + code[start..].find(['{', ';'])?;
        let is_around = code[open..].starts_with('{') && source::matching(code, open)? > at;
        is_around.then(|| name.to_owned())
    });
    around.collect()
}

/// Reads a path, or the tree of a `use`, from the front of `code`: every leaf with the name it has there.
fn read_path(code: &str, is_use: bool, prefix: &mut Module, out: &mut Vec<(String, Module)>) {
    let code = code.trim_start();
    if is_use && code.starts_with('{') {
        let Some(end) = source::matching(code, 0) else { return };
        for part in source::split(&code[1..end]) {
            read_path(part, true, &mut prefix.clone(), out);
        }
        return;
    }
    let name = source::identifier(code);
    if name.is_empty() {
        // The end of `a::*`, or of an expression such as `a::<B>()`.
        if let Some(last) = prefix.last() {
            out.push((format!("{last}::*"), prefix.clone()));
        }
        return;
    }
    let rest = code[name.len()..].trim_start();
    let is_self = name == "self" && !prefix.is_empty();
    if !is_self {
        prefix.push(name.to_owned());
    }
    if let Some(rest) = rest.strip_prefix("::") {
        return read_path(rest, is_use, prefix, out);
    }
    let alias = rest.strip_prefix("as ").map(|rest| source::identifier(rest.trim_start()));
    let own = prefix.last().cloned().unwrap_or_default();
    out.push((alias.map_or(own, str::to_owned), prefix.clone()));
}

/// A path from the crate's root; none if it has more `super` than there are modules.
fn absolute(here: &[String], path: &[String]) -> Option<Module> {
    if path[0] == "crate" {
        return Some(path[1..].to_vec());
    }
    let up = path.iter().take_while(|name| *name == "super").count();
    let base = here.len().checked_sub(up)?;
    Some([&here[..base], &path[up..]].concat())
}

#[cfg(test)]
mod tests {
    use super::no_import_circles;
    use crate::tidy::files::Text;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let texts: Vec<_> = files
            .iter()
            .map(|(path, text)| Text {
                path: format!("crates/flick-check/src/{path}"),
                text: (*text).to_owned(),
            })
            .collect();
        let found: Vec<_> = no_import_circles(&texts).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}: {expected}");
        }
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        check(&[("a.rs", "use crate::b::B;"), ("b.rs", "fn f() { crate::a::g() }")], &["a uses b"]);
        check(
            &[("a.rs", "use super::b::{B, C};"), ("b.rs", "use super::c::C;"), ("c.rs", "use crate::a;")],
            &["c uses a"],
        );
        check(&[("a.rs", "use crate::b::B;"), ("b.rs", "// crate::a\n\"crate::a\";")], &[]);
        check(&[("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }")], &[]);
    }

    #[test]
    fn parents_and_children_may_use_each_other() {
        check(&[("a.rs", "use b::B;"), ("a/b.rs", "use super::A; use crate::a::C;")], &[]);
        check(&[("lib.rs", "use a::A;"), ("a.rs", "use crate::B;")], &[]);
    }

    #[test]
    fn folders_that_use_each_other_are_a_circle() {
        check(
            &[("a/x.rs", "use crate::b::y;"), ("b/y.rs", ""), ("b/z.rs", "use crate::a::w;"), ("a/w.rs", "")],
            &["b uses a"],
        );
        check(&[("a/x.rs", "use super::y::Y;"), ("a/y.rs", "use super::x::X;")], &["modules of `a`"]);
    }

    #[test]
    fn reexports_are_followed() {
        let root = ("lib.rs", "mod a;\npub use b::{self, B as Renamed};");
        check(&[root, ("a.rs", "use crate::Renamed;"), ("b.rs", "use crate::a::A;")], &["a uses b"]);
        check(&[root, ("a.rs", "use crate::Renamed;"), ("b.rs", "")], &[]);
    }

    #[test]
    fn inline_modules_are_counted_by_super() {
        check(&[("a.rs", "mod x { use super::super::b::B; }"), ("b.rs", "use crate::a::x;")], &["a uses b"]);
        check(&[("a.rs", "mod b { use super::B; }"), ("b.rs", "use crate::a;")], &[]);
    }
}
