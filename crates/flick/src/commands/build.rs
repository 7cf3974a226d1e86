//! `flick build`: what the compiler makes of a program, for reading. Running needs no build.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use flick_check::hir;
use flick_codegen::Options;
use flick_compiler::{Input, check, generate};
use flick_ir::data::Module;

use crate::failure::{Failure, Outcome};
use crate::report;

/// Type of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Emit {
    /// The program as IR, in its text form
    Ir,
    /// Input of the code generator (Cranelift IR)
    Clif,
    /// Disassembled machine code
    Asm,
    /// The task graph as SVG and DOT
    Graph,
}

/// Writes what the compiler makes of a program.
#[derive(Debug, Args)]
pub struct Build {
    /// The program
    file: PathBuf,
    /// Type of output to print
    #[arg(long, value_name = "WHAT")]
    emit: Emit,
    /// Name of the process [default: the first]
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// Output file; a directory for `graph` [default: stdout, for `graph` the current directory]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
}

impl Build {
    /// Compiles as far as needed and writes.
    pub fn run(self) -> Outcome {
        let accepted = check(&Input::file(&self.file)?)?.accept()?;
        report::warnings(&accepted.warnings, &accepted.sources);
        let module = accepted.module(self.chosen(&accepted.program)?)?;
        match self.emit {
            Emit::Ir => self.write_text(&flick_ir::text::print(&module)),
            Emit::Clif => self.write_text(&listing(&module)?.clif()),
            Emit::Asm => self.write_text(&listing(&module)?.asm()),
            Emit::Graph => self.write_graph(&module),
        }
    }

    /// The process that was asked for, or the first.
    fn chosen<'a>(&self, program: &'a hir::Program) -> Result<&'a hir::Program, Failure> {
        let Some(wanted) = &self.process else { return Ok(program) };
        let is_wanted =
            |program: &&hir::Program| program.process.as_ref().is_some_and(|process| process.name == *wanted);
        program.each().find(is_wanted).ok_or_else(|| {
            let names = program.each().filter_map(|program| Some(program.process.as_ref()?.name.as_str()));
            let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            Failure::usage(format!("there is no process `{wanted}`; there are: {}", names.join(", ")))
        })
    }

    fn write_text(&self, text: &str) -> Outcome {
        match &self.output {
            Some(path) => write(path, text),
            None => {
                crate::console::sayln!("{}", text.trim_end());
                Ok(())
            }
        }
    }

    fn write_graph(&self, module: &Module) -> Outcome {
        let directory = self.output.clone().unwrap_or_else(|| PathBuf::from("."));
        fs::create_dir_all(&directory)
            .map_err(|error| Failure::failed(format!("cannot create {}: {error}", directory.display())))?;
        let stem = self
            .file
            .file_stem()
            .map_or_else(|| module.program.name.clone(), |stem| stem.to_string_lossy().into_owned());
        let graph = flick_ir::graph::graph(module);
        let forms = [("svg", flick_ir::graph::to_svg(&graph)), ("dot", flick_ir::graph::to_dot(&graph))];
        for (ending, text) in forms {
            let path = directory.join(format!("{stem}.{ending}"));
            write(&path, &text)?;
            crate::console::sayln!("{}", path.display());
        }
        Ok(())
    }
}

fn listing(module: &Module) -> Result<flick_codegen::Compiled, Failure> {
    Ok(generate(module, &Options { listings: true, ..Options::default() })?)
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text)
        .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}
