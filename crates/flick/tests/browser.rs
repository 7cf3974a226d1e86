//! Pages of ours in a real browser: no complaint in its console, every link leads somewhere, nothing sticks out of a
//! narrow screen, light and dark are both there; the admin page shows what a service does while it does it.

#[path = "browser/chromium.rs"]
mod chromium;
mod common;

use chromium::Browser;
use common::peers::{Memcached, free_address};
use common::service::Service;
use common::{PROXY, Scratch, client, run};
use flick_load::binary::{Opcode, Status};

/// Questions to a page of documentation: its links that lead nowhere, and the elements that are wider than the screen.
const HREFS: &str = "[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))
    .filter(href => !href.startsWith('#') || !document.getElementById(decodeURIComponent(href.slice(1))))";
const TOO_WIDE: &str = "document.documentElement.scrollWidth <= window.innerWidth ? []
    : [...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > window.innerWidth)
        .filter(e => !e.closest('.fields, .picture, pre, details'))
        .map(e => e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 60)).slice(0, 5)";
const BACKGROUND: &str = "getComputedStyle(document.body).backgroundColor";

#[test]
fn grammar_pages_work_in_a_browser() {
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
        assert_eq!(browser.value(HREFS), serde_json::json!([]), "links of {name} that lead nowhere");
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

/// Fetched by the page once a second; the second time it has rates.
const RATES: &str = "new Promise(done => {
    const look = () => document.body.dataset.seen === 'rates' ? done(true) : requestAnimationFrame(look);
    look();
})";

/// Whether the process has recorded a sample of its service, at the latest two intervals after its start.
const HAS_HISTORY: &str = "new Promise(done => {
    const ends = Date.now() + 20000;
    const look = async () => {
        const services = Object.values(await (await fetch('api/history')).json());
        if (services.some(samples => samples.length > 0)) return done(true);
        if (Date.now() > ends) return done(JSON.stringify(services));
        setTimeout(look, 200);
    };
    look();
})";

#[test]
fn admin_page_shows_a_running_service() {
    let memcached = Memcached::start();
    let service = Service::proxy(&[memcached.address, free_address()], &["--workers", "1", "--admin", "0"]);
    let admin = service.admin();
    let mut client = client::connect(service.address);
    let mut failed = 0;
    for round in 0..64 {
        let key = format!("key{round}");
        failed += u32::from(
            !client::ask(&mut client, Opcode::Set, round, key.as_bytes(), b"v").is(Status::NoError),
        );
    }
    assert!(failed > 0 && failed < 64, "one of two backends is down: {failed}");
    let mut browser = Browser::start("admin");
    browser.open(&format!("http://{admin}/"));
    assert_eq!(browser.value(RATES), true);
    let text = browser.value("document.body.innerText").as_str().expect("a page has text").to_owned();
    for piece in ["Memcached", "serving", "client =>", "64", "backend is down", "down", "up"] {
        assert!(text.contains(piece), "`{piece}` is not in\n{text}");
    }
    assert_eq!(browser.value("document.querySelectorAll('.graph .edge').length"), 4);
    assert_eq!(browser.value("document.querySelectorAll('.curve').length"), 3);
    assert_eq!(browser.value("document.querySelectorAll('#services section').length"), 1);
    let overview = browser.value("document.getElementById('overview').innerText");
    let overview = overview.as_str().expect("it has text");
    assert!(
        overview.contains("1 of 2 backends down") && overview.trim_end().ends_with("\t1 of 2"),
        "{overview}"
    );
    let target = "document.querySelector(document.querySelector('#overview a').getAttribute('href')).tagName";
    assert_eq!(browser.value(target), "SECTION");
    assert_eq!(browser.value(HAS_HISTORY), true, "a page that is opened now begins with it");
    for width in [1200, 390] {
        browser.resize(width, 800);
        assert_eq!(browser.value(TOO_WIDE), serde_json::json!([]), "on a screen of {width}");
    }
    assert_eq!(browser.complaints, [""; 0]);
    service.drained();
    // The service is gone: the page says so and goes on showing what it had.
    let gone = "new Promise(done => {
        const look = () => document.getElementById('notice').hidden ? requestAnimationFrame(look) : done(true);
        look();
    })";
    assert_eq!(browser.value(gone), true);
}

#[test]
fn admin_page_shows_a_rate_for_each_edge() {
    let memcached = Memcached::start();
    let connect = format!("backends={}", memcached.address);
    let program = "examples/memcached_cache/memcached_cache.flick";
    let args = ["run", program, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--admin", "0"];
    let service = Service::start(&args);
    let mut browser = Browser::start("admin-edges");
    browser.open(&format!("http://{}/", service.admin()));
    assert_eq!(browser.value(RATES), true);
    let edges = browser.value("document.querySelectorAll('.graph .edge:not(.keeps)').length");
    assert_eq!(
        edges, 6,
        "client and backends come in; the client's rule asks, sends on and answers, replies go out"
    );
    let rates = "[...document.querySelectorAll('.graph .rate')].filter(rate => rate.textContent.endsWith('/s')).length";
    assert_eq!(browser.value(rates), edges);
    assert_eq!(browser.complaints, [""; 0]);
    service.drained();
}

#[test]
fn admin_page_shows_what_carries_connections() {
    let memcached = Memcached::start();
    let name = format!("browser-{}", std::process::id());
    let (listen, connect) =
        (format!("client=127.0.0.1:0,shm:{name}"), format!("backends={}", memcached.address));
    let service = Service::start(&["run", PROXY, "--listen", &listen, "--connect", &connect, "--admin", "0"]);
    let ring = client::on_ring(&name);
    let mut browser = Browser::start("admin-shm");
    browser.open(&format!("http://{}/", service.admin()));
    assert_eq!(browser.value(RATES), true);
    let opened = "new Promise(done => {
        document.getElementById('clients').open = true;
        const look = () => document.getElementById('named').innerText.includes('Backend') ? done(true) : requestAnimationFrame(look);
        look();
    })";
    assert_eq!(browser.value(opened), true);
    let text = browser.value("document.body.innerText").as_str().expect("a page has text").to_owned();
    for piece in ["Shared memory", "Wake-ups", "Transport", "shm", &memcached.address.to_string()] {
        assert!(text.contains(piece), "`{piece}` is not in\n{text}");
    }
    assert_eq!(browser.complaints, [""; 0]);
    drop(ring);
    service.drained();
}
