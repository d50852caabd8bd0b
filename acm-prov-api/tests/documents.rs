//! The README shows the first example as it is.

#[test]
fn the_readme_has_the_first_provider_whole() {
    let example = include_str!("../examples/names_and_sa.rs");
    let code = example.lines().skip_while(|line| line.starts_with("//!"));
    let mut shown = String::new();
    for line in code.skip_while(|line| line.is_empty()) {
        let indent = if line.is_empty() { "" } else { "    " };
        shown += &format!("{indent}{line}\n");
    }
    assert!(shown.contains("impl Policy for"), "{shown}");
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&shown), "not in the README:\n{shown}");
}
