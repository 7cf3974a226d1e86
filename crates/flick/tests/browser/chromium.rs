//! A real browser without a screen: Debian's chromium, spoken to through its debugging protocol over two pipes.
//! Promises: whatever the page complains about in the console, and every exception, is kept for the test to look at;
//! the browser is ended when its handle is dropped; an answer that does not come fails the test.
//! Refuses: the sandbox, which tests as root cannot have. Only pages of ours are loaded.
//! Source: Chrome DevTools Protocol 1.3; `--remote-debugging-pipe` frames its JSON with a byte 0.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use serde_json::{Value, json};

use super::common::Scratch;
use super::common::process::OwnedChild;
use super::common::wait::WAIT_MAX;

/// The browser with one page.
pub struct Browser {
    _child: OwnedChild,
    commands: File,
    answers: Receiver<Value>,
    session: Option<String>,
    next_id: u64,
    loaded: bool,
    /// Errors and warnings in the console of the page, and exceptions that it threw.
    pub complaints: Vec<String>,
    // The profile: removed behind the browser.
    _profile: Scratch,
}

impl Browser {
    /// Starts it with an empty page.
    pub fn start(test: &str) -> Self {
        let profile = Scratch::new(&format!("chromium-{test}"));
        let [commands, answers] = ["commands", "answers"].map(|name| fifo(profile.path(), name));
        // The shell gives the browser its descriptors 3 and 4; opening a pipe waits for its other side.
        let script = "exec chromium \"$@\" 3<\"$COMMANDS\" 4>\"$ANSWERS\"";
        let data = format!("--user-data-dir={}", profile.path().join("profile").display());
        let child = Command::new("sh")
            .args(["-c", script, "sh", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-dev-shm-usage",
            ])
            .args(["--hide-scrollbars", "--remote-debugging-pipe", &data])
            .env("COMMANDS", &commands)
            .env("ANSWERS", &answers)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Err(error) if error.kind() == ErrorKind::NotFound => panic!("no shell: {error}"),
            child => OwnedChild(child.expect("a shell starts")),
        };
        let commands = File::create(commands).expect("the shell opens its side");
        let answers = File::open(answers).expect("the shell opens its side");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut answers = BufReader::new(answers);
            let mut line = Vec::new();
            while answers.read_until(0, &mut line).is_ok_and(|length| length > 1) {
                line.pop();
                let value = serde_json::from_slice(&line).expect("the browser speaks JSON");
                if sender.send(value).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let mut browser = Self {
            _child: child,
            commands,
            answers: receiver,
            session: None,
            next_id: 0,
            loaded: false,
            complaints: Vec::new(),
            _profile: profile,
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", attach);
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Loads a page and waits until it and all it needs are there.
    pub fn open(&mut self, url: &str) {
        self.loaded = false;
        let answer = self.call("Page.navigate", json!({"url": url}));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
        while !self.loaded {
            self.next();
        }
    }

    /// Returns the value of an expression in the page, or, if it is a promise, of its result.
    pub fn value(&mut self, expression: &str) -> Value {
        let ask = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", ask);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Gives the page a screen of this size.
    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Lets the page believe that its reader prefers `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).expect("the browser reads");
        loop {
            let answer = self.next();
            if answer["id"] == json!(id) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Takes one message, and notes what it says about the page.
    fn next(&mut self) -> Value {
        let message = self
            .answers
            .recv_timeout(WAIT_MAX)
            .expect("the browser answers in time; it is Debian's package chromium that has to be installed");
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.exceptionThrown") => self.complaints.push(params["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled")
                if matches!(params["type"].as_str(), Some("error" | "warning" | "assert")) =>
            {
                self.complaints.push(params["args"].to_string());
            }
            Some("Log.entryAdded")
                if matches!(params["entry"]["level"].as_str(), Some("error" | "warning")) =>
            {
                self.complaints.push(params["entry"].to_string());
            }
            _ => {}
        }
        message
    }
}

fn fifo(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo is part of every system");
    assert!(made.success(), "a pipe can be made at {}", path.display());
    path
}
