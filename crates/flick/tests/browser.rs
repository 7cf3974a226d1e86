//! Pages of ours in a real browser: no complaint in its console, every link leads somewhere, nothing sticks out of a
//! narrow screen, light and dark are both there.

#[path = "browser/chromium.rs"]
mod chromium;
mod common;

use chromium::Browser;
use common::{Scratch, run};

/// What a page of documentation is asked: its links that lead nowhere, and what makes it wider than the screen.
const LINKS: &str = "[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))
    .filter(href => !href.startsWith('#') || !document.getElementById(decodeURIComponent(href.slice(1))))";
const TOO_WIDE: &str = "document.documentElement.scrollWidth <= window.innerWidth ? []
    : [...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > window.innerWidth)
        .filter(e => !e.closest('.fields, .picture, pre, details'))
        .map(e => e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 60)).slice(0, 5)";
const BACKGROUND: &str = "getComputedStyle(document.body).backgroundColor";

#[test]
fn pages_of_grammars_are_whole_in_a_browser() {
    let scratch = Scratch::new("browser-doc");
    let out = scratch.path().to_str().expect("the path is UTF-8");
    let grammars = ["http", "memcached_binary", "resp", "memcached_text", "pcap"];
    let example = "examples/memcached_proxy/memcached_proxy.flick";
    let (status, _, stderr) = run(&[&["doc", "--out", out], grammars.as_slice(), &[example]].concat());
    assert_eq!((status, stderr.as_str()), (0, ""));
    let mut browser = Browser::start("doc");
    for name in grammars.iter().chain(&["memcached_proxy"]) {
        browser.prefer("light");
        browser.open(&format!("file://{out}/{name}.html"));
        assert_eq!(browser.value("document.title"), *name);
        assert_eq!(browser.value(LINKS), serde_json::json!([]), "links of {name} that lead nowhere");
        assert!(browser.value("document.querySelectorAll('section').length").as_u64() > Some(0), "{name}");
        let light = browser.value(BACKGROUND);
        browser.prefer("dark");
        assert_ne!(browser.value(BACKGROUND), light, "{name} has a dark side");
        for width in [1200, 380] {
            browser.resize(width, 800);
            assert_eq!(browser.value(TOO_WIDE), serde_json::json!([]), "{name} on a screen of {width}");
        }
        assert_eq!(browser.complaints, [""; 0], "{name}");
    }
}
