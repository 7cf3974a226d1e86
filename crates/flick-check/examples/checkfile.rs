//! Checks a file and prints what is said about it.
fn main() {
    let path = std::env::args().nth(1).expect("a path");
    let text = std::fs::read_to_string(&path).expect("a readable file");
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../stdlib/");
    let (program, diagnostics, sources) = flick_check::check(&path, &text, &|name| {
        let path = format!("{dir}{name}.flick");
        std::fs::read_to_string(&path).ok().map(|text| (format!("<stdlib>/{name}.flick"), text))
    });
    for found in &diagnostics {
        println!("{}", flick_check::render(found, &sources, false));
    }
    if std::env::args().nth(2).is_some() {
        println!("{:#?}", program);
    } else {
        println!(
            "{}",
            program.as_ref().map_or("refused".to_owned(), |program| flick_check::summary(program, true))
        );
    }
}
