//! `flick doc`: a grammar or library as a page of HTML.
//! Promises: only what the checker accepts gets a page; a page is there whole or not at all; its name is printed.
//! Not here: what the page says (`flick-doc`).

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use flick_compiler::{Input, check, read_source, stdlib};

use crate::failure::{Failure, Outcome};
use crate::report;

/// Writes a page for each grammar.
#[derive(Debug, Args)]
pub struct Doc {
    /// A file, or the name of a library such as `memcached_binary`
    #[arg(required = true, value_name = "FILE|LIBRARY")]
    grammars: Vec<PathBuf>,
    /// The directory for the pages
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

impl Doc {
    /// Writes the pages of all grammars, also behind one with errors.
    pub fn run(self) -> Outcome {
        fs::create_dir_all(&self.out)
            .map_err(|error| Failure::failed(format!("cannot make {}: {error}", self.out.display())))?;
        let mut is_right = true;
        for grammar in &self.grammars {
            is_right &= self.page(grammar).unwrap_or_else(|failure| {
                failure.report();
                false
            });
        }
        if is_right { Ok(()) } else { Err(Failure::reported()) }
    }

    /// Writes one page. Returns whether the grammar has no errors.
    fn page(&self, grammar: &Path) -> Result<bool, Failure> {
        let input = read(grammar)?;
        let checked = check(&input)?;
        let is_wrong = report::report(&checked.diagnostics, &checked.sources);
        if is_wrong || checked.program.is_none() {
            return Ok(false);
        }
        let name = Path::new(&input.name).file_stem().map_or("grammar".into(), |stem| stem.to_string_lossy());
        let used = |name: &str| input.used(name).ok().flatten().map(|(_, text)| text);
        let page = flick_doc::page(&name, &input.text, &used);
        let target = self.out.join(format!("{name}.html"));
        write(&target, &page)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", target.display())))?;
        crate::console::sayln!("wrote {}", target.display());
        Ok(true)
    }
}

/// Finds the text: that of a file, else of a library with this name.
fn read(grammar: &Path) -> Result<Input<'static>, Failure> {
    match read_source(grammar) {
        Ok(text) => Ok(Input::at(grammar, text)),
        Err(error) => {
            let name = grammar.to_str().filter(|name| !name.contains(['/', '.']));
            let library = name.and_then(|name| Some(Input::text(&stdlib::shown(name), stdlib::text(name)?)));
            library.ok_or_else(|| {
                let path = grammar.display();
                Failure::failed(format!("cannot read {path}: {error}; nor is there a library of this name"))
            })
        }
    }
}

/// Writes a new file beside the old page and puts it in its place.
fn write(target: &Path, page: &str) -> std::io::Result<()> {
    let beside = target.with_extension(format!("html.{}.tmp", std::process::id()));
    let result = fs::write(&beside, page).and_then(|()| fs::rename(&beside, target));
    if result.is_err() {
        // It may never have been made; then there is nothing to remove.
        let _ = fs::remove_file(&beside);
    }
    result
}
