//! Exports the core's and the adapter's symbols to loaded providers.

fn main() {
    for kind in ["bins", "tests"] {
        for symbols in ["acm_*", "ibv_*", "ib_any_gid"] {
            println!("cargo::rustc-link-arg-{kind}=-Wl,--export-dynamic-symbol={symbols}");
        }
    }
}
