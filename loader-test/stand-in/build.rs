//! Builds the C shim: `acm_write` is variadic, which Rust cannot define.

fn main() {
    println!("cargo::rerun-if-changed=src/write.c");
    cc::Build::new()
        .file("src/write.c")
        .warnings(true)
        .compile("acm_stand_in_write");
}
