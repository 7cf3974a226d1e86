//! RAPL through powercap: the energy that the packages of this machine have used.
//! Promises: every package counts once; a counter that has wrapped around is no error; a file that cannot be read is a
//! reason and not an error of the program.
//! Refuses: readings so far apart that a counter wraps around twice, which takes minutes under full load; trials are
//! shorter (`DWELL_MAX`).
//! Source: the kernel's documentation, power/powercap/powercap.rst.

use std::path::Path;

use super::knobs::{NO_RAPL, POWERCAP, packages};
use super::tree::Tree;

/// The counters of all packages.
#[derive(Debug)]
pub(super) struct Rapl<'a> {
    tree: Tree<'a>,
    packages: Vec<PackageCounter>,
}

#[derive(Debug)]
struct PackageCounter {
    zone: String,
    /// Value at which it wraps around.
    range_uj: u64,
    last_uj: u64,
}

impl<'a> Rapl<'a> {
    /// Reads the counters below `root` for the first time. Errors: why there is no energy to read.
    pub(super) fn open(root: &'a Path) -> Result<Self, String> {
        let tree = Tree(root);
        let open = |zone: String| {
            let range_uj = number(&tree, &zone, "max_energy_range_uj")?;
            let last_uj = number(&tree, &zone, "energy_uj")?;
            Ok(PackageCounter { zone, range_uj, last_uj })
        };
        let packages: Vec<PackageCounter> =
            packages(&tree).into_iter().map(open).collect::<Result<_, String>>()?;
        if packages.is_empty() {
            return Err(NO_RAPL.to_owned());
        }
        Ok(Self { tree, packages })
    }

    /// Energy of all packages since the last reading, in J. Errors: why it is unknown.
    pub(super) fn joules(&mut self) -> Result<f64, String> {
        let mut sum_uj = 0;
        for package in &mut self.packages {
            let now_uj = number(&self.tree, &package.zone, "energy_uj")?;
            let wrapped = package.range_uj.saturating_sub(package.last_uj).saturating_add(now_uj);
            sum_uj += now_uj.checked_sub(package.last_uj).unwrap_or(wrapped);
            package.last_uj = now_uj;
        }
        Ok(sum_uj as f64 / 1e6)
    }
}

fn number(tree: &Tree<'_>, zone: &str, file: &str) -> Result<u64, String> {
    let path = format!("{POWERCAP}/{zone}/{file}");
    let text = tree.text(&path)?;
    text.parse().map_err(|_| format!("/{path} is not a number: {text}"))
}

#[cfg(test)]
mod tests {
    use super::Rapl;
    use crate::commands::tune::tree::tests::FakeTree;

    fn zone(number: u32, file: &str) -> String {
        format!("sys/class/powercap/intel-rapl:{number}/{file}")
    }

    #[test]
    fn packages_add_up_and_wrap_around() {
        let files = [
            (zone(0, "name"), "package-0"),
            (zone(0, "energy_uj"), "1000000"),
            (zone(0, "max_energy_range_uj"), "262143328850"),
            (zone(1, "name"), "package-1"),
            (zone(1, "energy_uj"), "262143000000"),
            (zone(1, "max_energy_range_uj"), "262143328850"),
            // Parts of a package, and what holds the packages, are counted in or with them.
            ("sys/class/powercap/intel-rapl:0:0/energy_uj".to_owned(), "5"),
            (zone(2, "name"), "psys"),
            (zone(2, "energy_uj"), "7"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = FakeTree::new("rapl", &files);
        let mut rapl = Rapl::open(&tree.0).expect("all files are there");
        assert_eq!(rapl.joules(), Ok(0.0));
        tree.write(&zone(0, "energy_uj"), "3500000\n");
        tree.write(&zone(1, "energy_uj"), "1671150\n");
        assert_eq!(rapl.joules(), Ok(2.5 + 2.0), "package 1 has wrapped around");
        assert_eq!(rapl.joules(), Ok(0.0), "a reading begins where the last one ended");
        tree.write(&zone(1, "energy_uj"), "none");
        let error = rapl.joules().expect_err("it is no number");
        assert_eq!(error, "/sys/class/powercap/intel-rapl:1/energy_uj is not a number: none");
    }

    #[test]
    fn an_unreadable_counter_says_why() {
        let tree = FakeTree::new("rapl-none", &[]);
        let error = Rapl::open(&tree.0).expect_err("there is no zone");
        assert!(error.contains("no powercap zone of RAPL"), "{error}");
        let name = zone(0, "name");
        let range = zone(0, "max_energy_range_uj");
        let files = [(name.as_str(), "package-0"), (range.as_str(), "1")];
        let tree = FakeTree::new("rapl-unreadable", &files);
        let error = Rapl::open(&tree.0).expect_err("there is no counter");
        assert!(error.starts_with("cannot read /sys/class/powercap/intel-rapl:0/energy_uj: "), "{error}");
    }
}
