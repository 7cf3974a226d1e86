//! Pages and pieces of them. `UPDATE=1 cargo test` rewrites the golden pages.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

use flick_doc::page;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the text of a library of the repository.
fn library(name: &str) -> Option<String> {
    std::fs::read_to_string(root().join(format!("stdlib/{name}.flick"))).ok()
}

fn page_of(text: &str) -> String {
    page("test", text, &library)
}

/// Returns the page of `text` between its contents and the text itself.
fn body(text: &str) -> String {
    let page = page_of(text);
    let main = page.split_once("<main>\n").unwrap().1.split_once("</main>").unwrap().0;
    main.to_owned()
}

/// Checks that the page of `text` has each of the pieces, in this order.
fn check(text: &str, pieces: &[&str]) {
    let body = body(text);
    let mut rest = body.as_str();
    for piece in pieces {
        rest = rest.split_once(piece).unwrap_or_else(|| panic!("no `{piece}` here in\n{body}")).1;
    }
}

/// Checks the part of a library's page about one declaration against `data/NAME.html`.
fn check_golden(library_name: &str, declaration: &str) {
    let text = library(library_name).unwrap();
    let page = page(library_name, &text, &library);
    let start = page.find(&format!("<section id=\"{declaration}\">")).unwrap();
    let end = start + page[start..].find("</section>").unwrap();
    // The numbers of the columns are the same in every picture.
    let section =
        page[start..end].lines().map(|line| match line.split_once("<thead><tr><th scope=\"col\">0</th>") {
            Some((before, _)) => format!("{before}...\n"),
            None => format!("{line}\n"),
        });
    let section: String = section.collect();
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{library_name}.{declaration}.html"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        std::fs::write(&golden, &section).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(section, expected, "run with UPDATE=1 and review the difference");
}

/// Checks that every element is closed where it should be, no anchor is given twice, and every link within the page has
/// its anchor; that nothing is fetched from elsewhere.
fn check_sound(name: &str, page: &str) {
    let (mut open, mut ids, mut links) = (Vec::new(), Vec::new(), Vec::new());
    for tag in page.split('<').skip(1).map(|rest| rest.split_once('>').unwrap().0) {
        let element = tag.split([' ', '\n']).next().unwrap();
        if let Some(closed) = element.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{name}: <{tag}>");
        } else if !matches!(element, "meta" | "!doctype") {
            open.push(element);
        }
        let value_of =
            |attribute: &str| Some(tag.split_once(attribute)?.1.split('"').next().unwrap().to_owned());
        ids.extend(value_of(" id=\""));
        links.extend(value_of(" href=\"#"));
        assert!(!tag.contains("src=") && !tag.contains("://"), "{name}: <{tag}>");
    }
    assert_eq!(open, Vec::<&str>::new(), "{name}");
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "{name}: an anchor stands twice");
    for link in links {
        assert!(ids.contains(&link), "{name}: no anchor for {link}");
    }
}

fn programs() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for directory in ["stdlib", "examples", "crates/flick-syntax/tests/data"] {
        for entry in std::fs::read_dir(root().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let files = match path.is_dir() {
                true => std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect(),
                false => vec![path],
            };
            for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "flick")) {
                let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
                found.push((name, std::fs::read_to_string(file).unwrap()));
            }
        }
    }
    found
}

#[test]
fn memcached_binary() {
    check_golden("memcached_binary", "cmd");
    check_golden("memcached_binary", "magic");
}

#[test]
fn hadoop() {
    check_golden("hadoop", "kv");
}

#[test]
fn http() {
    check_golden("http", "field");
    check_golden("http", "chunk");
}

#[test]
fn every_program_has_a_sound_page() {
    let programs = programs();
    assert!(programs.len() > 5, "the programs are not where they were");
    for (name, text) in programs {
        check_sound(&name, &page(&name, &text, &library));
    }
}

#[test]
fn any_prefix_has_a_sound_page() {
    let text = include_str!("../../flick-syntax/tests/data/grammar.flick");
    for end in (0..text.len()).step_by(7).filter(|end| text.is_char_boundary(*end)) {
        check_sound(&format!("prefix {end}"), &page_of(&text[..end]));
    }
}

#[test]
fn what_the_author_wrote_is_no_markup() {
    let text = "# <b>&\ntype a = unit {\n  x : string<5> &until = \"<i>\"; # </td> `<u>`\n};\n";
    let page = page_of(text);
    check_sound("markup", &page);
    for piece in ["<i>&quot;", "<b>&", "<u>", " </td> "] {
        assert!(!page.contains(piece), "{piece}");
    }
    check(text, &["&lt;i&gt;", "&lt;/td&gt; <code>&lt;u&gt;</code>"]);
}

#[test]
fn fields_go_on_in_the_next_row() {
    check(
        "type a = unit { : uint8; x : uint64; y : bytes &length = 40; };",
        &[
            "<tr><td colspan=\"8\"><i>unnamed</i></td><td class=\"goes\" colspan=\"24\"><a href=\"#a.x\">x</a></td></tr>",
            "<tr><td class=\"from goes\" colspan=\"32\"><small><a href=\"#a.x\">x</a>, continued</small></td></tr>",
            "<td class=\"from\" colspan=\"8\"><small><a href=\"#a.x\">x</a>, continued</small></td><td class=\"gap\"",
            "<tr><td class=\"cut\" colspan=\"32\"><a href=\"#a.y\">y</a> <small>40 bytes</small></td></tr>",
            "<th scope=\"row\">y</th><td><code>bytes</code></td><td>9</td>",
        ],
    );
}

#[test]
fn bits_have_their_offsets() {
    check(
        "type a = unit { bits<16> { v : 4; : 1; f : 11; }; z : uint8; };",
        &[
            "<td colspan=\"4\"><a href=\"#a.v\">v</a></td><td><i>unnamed</i></td><td colspan=\"11\">",
            "<th scope=\"row\">f</th><td>11 bits</td><td>0, bit 5</td>",
            "<th scope=\"row\">z</th><td><code>uint8</code></td><td>2</td>",
        ],
    );
}

#[test]
fn a_literal_among_numbers_is_one() {
    check(
        "type a = unit { \"MQTT\"; v : uint8; };",
        &["<tr><td colspan=\"32\"><code>&quot;MQTT&quot;</code></td></tr>", "<td colspan=\"8\">"],
    );
    check(
        "type a = unit { \"GET \"; v : string<5> &until = \"\\r\\n\"; };",
        &["<span class=\"literal\">", "then <code>CRLF</code>"],
    );
}

#[test]
fn units_in_units_have_a_width() {
    check(
        "type b = unit { x : uint8; bits<8> { y : 8; }; };\ntype a = unit { h : b; z : uint8; l : [b]<3> &count = 2; };",
        &[
            "<section id=\"a\">",
            "<td colspan=\"16\"><a href=\"#a.h\">h</a></td><td colspan=\"8\">",
            "<span class=\"piece repeats\"><a href=\"#a.l\">l</a>",
            "<th scope=\"row\">z</th><td><code>uint8</code></td><td>2</td>",
        ],
    );
    check(
        "type a = unit { x : a; y : uint8; };",
        &["<th scope=\"row\">y</th><td><code>uint8</code></td><td></td>"],
    );
}

#[test]
fn choices_have_a_frame_for_each_case() {
    check(
        "type a = unit { k : uint8; switch self.k { 1, 2: { x : uint8; } else: {} }; y : uint8 &if = self.k > 1; };",
        &[
            "<div class=\"when\"><code>self.k</code> is <code>1, 2</code></div>",
            "<div class=\"when\">else</div>\n<div class=\"row\"><span class=\"none\">nothing</span></div>",
            "<div class=\"when\">if <code>self.k &gt; 1</code></div>",
            "where <code>self.k</code> is <code>1, 2</code>",
            "<tr id=\"a.x\">",
            ">then</th>",
            "<tr id=\"a.y\">",
        ],
    );
}

#[test]
fn comments_belong_to_what_they_stand_beside() {
    check(
        "# The file.\n\n# About a.\ntype a = unit {\n  # Above x.\n  x : uint8; # Behind x,\n             # going on.\n  y : uint8; \" \"; # Behind y.\n\n  # Alone.\n\n  z : uint8;\n};\n",
        &[
            "<p>About a.</p>",
            "Above x. Behind x, going on.</td>",
            "Behind y.</td>",
            "<th scope=\"row\">z</th><td><code>uint8</code></td><td>3</td><td></td><td></td>",
        ],
    );
    assert!(
        page_of("# The file.\n# Source: a book.\ntype a = unit { x : uint8; };\n")
            .contains("<header>\n<h1>test</h1>\n<p>The file.</p>\n<p><b>Source:</b> a book.</p>\n</header>")
    );
}

#[test]
fn what_has_no_name_is_explained_where_the_author_did() {
    check(
        "type a = unit {\n  # Overlooked.\n  \"\\r\\n\" &optional &cut;\n  \" \";\n  : uint8; # Reserved.\n  : uint8;\n};\n",
        &[
            "<tr><th scope=\"row\"><code>CRLF</code></th><td></td><td>0</td><td>may be missing</td><td>Overlooked. Never forwarded.</td></tr>\n<tr><th scope=\"row\"><i>unnamed</i></th>",
            "Reserved.</td></tr>\n</tbody>",
        ],
    );
}

#[test]
fn classes_are_charts() {
    let text = "type b = class { \"a\"..\"c\" };\ntype a = class not { b, \"z\" }; # All but these.\n";
    check(
        text,
        &[
            "<section id=\"a\">",
            "<p>All but these.</p>",
            "<td title=\"0x61\">a</td><td title=\"0x62\">b</td><td title=\"0x63\">c</td><td class=\"in\" title=\"0x64\">d</td>",
            "<td title=\"0x7a\">z</td>",
            "<td colspan=\"16\" class=\"in\">all of 0x80 to 0xff</td>",
        ],
    );
    check("type a = class { a, \"x\" };", &["<td class=\"in\" title=\"0x78\">x</td>"]);
    check("type a = class { \"\\x90\" };", &["<th scope=\"row\">90</th><td class=\"in\""]);
}

#[test]
fn types_of_libraries_are_links_to_their_pages() {
    check(
        "use memcached_binary as mc\ntype a = unit { o : mc.opcode; b : opcode; };",
        &["<a href=\"memcached_binary.html#opcode\"><code>mc.opcode</code></a>", "<td>1</td>"],
    );
}
