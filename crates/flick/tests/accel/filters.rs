//! Filters of the distribution between two pipes: with rings each prints what it prints without.

use super::moving::setting_with;

/// Lines that go through each filter.
const LINES: u32 = 150_000;

/// Filters of which one has to have had bytes in rings: on a busy machine the others may end before the monitor looks.
const FILTERS_OF_CHECK: usize = 4;

const FILTERS: &[&str] = &[
    "cat",
    "cat -n",
    "tac",
    "rev",
    "tee copy",
    "tr 0-9 a-j",
    "sed s/1/one/g",
    "sed -u -n '/7$/p'",
    "awk '{ sum += $1 } END { print sum }'",
    "awk '{ print $1 \",\" NR }'",
    "grep -v 99",
    "grep --line-buffered 12",
    "cut -c 2-",
    "sort",
    "sort -rn",
    "uniq -w 3 -c",
    "nl",
    "paste - - -",
    "fold -w 3",
    "fmt -w 60",
    "pr -t -3",
    "expand",
    "unexpand -a",
    "head -n 140000",
    "tail -n +5",
    "tail -n 3",
    "wc",
    "od -c",
    "base64",
    "base64 | base64 -d",
    "md5sum",
    "sha256sum",
    "cksum",
    "sum",
    "numfmt --to=si",
    "split -b 1000000 --filter=cksum",
    "dd bs=777 status=none",
    "dd bs=10000 skip=3 count=50 iflag=fullblock status=none",
    "gzip -1",
    "gzip -1 | gzip -d",
    "xz -0 -T1",
    "xz -0 -T1 | xz -d",
    "perl -ne 'print if /3/'",
    "comm -23 - /dev/null",
    "join - /dev/null -v 1 --nocheck-order",
    "diff - /dev/null",
    "xargs -n 5000 echo",
    "stdbuf -oL head -n 50000",
];

#[test]
fn filter_printed_something_else_between_rings() {
    let setting = setting_with("filters-table", "pipes");
    for filters in FILTERS.chunks(FILTERS_OF_CHECK) {
        // The shell has no descriptor of a pipe beside: the filters are not in parentheses.
        let scripts = filters.iter().map(|filter| format!("seq 1 {LINES} | {filter} 2>&1 | cksum"));
        let scripts: Vec<_> = scripts.collect();
        setting.check(&scripts.iter().map(String::as_str).collect::<Vec<_>>());
    }
}
