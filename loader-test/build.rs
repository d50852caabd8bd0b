//! Builds the C shim of the stand-in core and exports the core's and the adapter's symbols to loaded providers.

fn main() {
    println!("cargo::rerun-if-changed=src/stand_in/write.c");
    cc::Build::new()
        .file("src/stand_in/write.c")
        .warnings(true)
        .compile("loader_test_write");
    for kind in ["bins", "tests"] {
        for symbols in ["acm_*", "ibv_*", "ib_any_gid"] {
            println!("cargo::rustc-link-arg-{kind}=-Wl,--export-dynamic-symbol={symbols}");
        }
    }
}
