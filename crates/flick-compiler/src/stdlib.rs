//! The standard library: its files are part of the binary.

/// Names and texts of the standard library, by name.
pub const FILES: &[(&str, &str)] = &[
    ("frames", include_str!("../../../stdlib/frames.flick")),
    ("hadoop", include_str!("../../../stdlib/hadoop.flick")),
    ("http", include_str!("../../../stdlib/http.flick")),
    ("http_forwarding", include_str!("../../../stdlib/http_forwarding.flick")),
    ("http_path", include_str!("../../../stdlib/http_path.flick")),
    ("lines", include_str!("../../../stdlib/lines.flick")),
    ("memcached_binary", include_str!("../../../stdlib/memcached_binary.flick")),
    ("memcached_text", include_str!("../../../stdlib/memcached_text.flick")),
    ("pcap", include_str!("../../../stdlib/pcap.flick")),
    ("pcap_big", include_str!("../../../stdlib/pcap_big.flick")),
    ("raw", include_str!("../../../stdlib/raw.flick")),
    ("resp", include_str!("../../../stdlib/resp.flick")),
];

/// Returns the text of the library file `name`.
pub fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the name under which diagnostics show the library file `name`.
pub fn shown(name: &str) -> String {
    format!("<stdlib>/{name}.flick")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn the_table_has_every_file_of_the_directory() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stdlib");
        let paths = std::fs::read_dir(directory).expect("the directory is in the repository");
        let paths = paths.map(|entry| entry.expect("a readable directory").path());
        let programs = paths.filter(|path| path.extension().is_some_and(|ending| ending == "flick"));
        let stems: BTreeSet<String> =
            programs.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
        let table: BTreeSet<String> = super::FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(table, stems);
        let named: BTreeSet<String> = flick_check::LIBRARIES.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(table, named, "the error for a library that does not exist lists them");
    }
}
