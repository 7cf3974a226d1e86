//! Search for the end of a run of bytes: the operation alone, called as a parser is, at the lengths of fields; beside
//! an inlined loop over a table of all bytes.

use std::hint::black_box;

use flick_abi::frame::SLOT_SCAN;
use flick_abi::limits::FRAME_HEAD_SLOTS;
use flick_abi::{Engine, Frame, FuncId, ParseStep};
use flick_codegen::{Compiled, Options};
use flick_compiler::generate;

use super::Row;

/// Lengths of runs.
const LENGTHS: [usize; 12] = [1, 4, 8, 12, 16, 24, 32, 48, 64, 100, 150, 200];
/// Visible characters, blanks, and bytes from 128 on: values of fields.
const CLASS: [u64; 4] = [0xffff_ffff_0000_0200, 0x7fff_ffff_ffff_ffff, u64::MAX, u64::MAX];
/// Bytes behind each run.
const BEHIND: usize = 40;

/// The operation, compiled, and runs of bytes.
pub(super) struct Scans {
    engine: Compiled,
    runs: Vec<Vec<u8>>,
}

impl Scans {
    pub(super) fn new() -> Result<Self, String> {
        let [a, b, c, d] = CLASS;
        let found = FRAME_HEAD_SLOTS;
        let text = format!(
            "program \"scan\" {{ }} class {a} {b} {c} {d}
             fn f0 parser \"scan\" {{
               b0(v0: frame, v1: int):
                 v2: int = frame_get {SLOT_SCAN} v3: int = scan_run v2 class 0 max 8192
                 frame_set {found}, v3 done
             }}"
        );
        let module = flick_ir::text::parse(&text).map_err(|error| error.message)?;
        let engine = generate(&module, &Options::default()).map_err(|error| error.to_string())?;
        let run = |len: &usize| [vec![b'a'; *len], vec![b'\r'; BEHIND]].concat();
        Ok(Self { engine, runs: LENGTHS.iter().map(run).collect() })
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        LENGTHS.iter().zip(&self.runs).map(move |(len, run)| {
            assert_eq!(self.scan(run, 1), *len as u64, "the run ends there");
            assert_eq!(by_table(run, 1), *len as u64, "the run ends there");
            Row {
                name: format!("a run of {len} bytes"),
                flick: Box::new(move |calls| self.scan(run, calls)),
                rival_name: "a loop over a table",
                rival: Box::new(move |calls| by_table(run, calls)),
            }
        })
    }

    fn scan(&self, run: &[u8], calls: usize) -> u64 {
        let mut frame = Frame::new();
        let mut sum = 0;
        for _ in 0..calls {
            let step = self.engine.parse(FuncId(0), &mut frame, black_box(run));
            assert!(step == ParseStep::Done, "a scan ends");
            sum += frame.slots[FRAME_HEAD_SLOTS];
        }
        sum
    }
}

fn by_table(run: &[u8], calls: usize) -> u64 {
    let table: [bool; 256] = std::array::from_fn(|byte| (CLASS[byte >> 6] >> (byte & 63)) & 1 == 1);
    let table = black_box(&table);
    let mut sum = 0;
    for _ in 0..calls {
        let run = black_box(run);
        sum += run.iter().take_while(|byte| table[usize::from(**byte)]).count() as u64;
    }
    sum
}
