//! Exports the core's and the adapter's symbols to the provider that a benchmark loads.

fn main() {
    for symbols in ["acm_*", "ibv_*", "ib_any_gid"] {
        println!("cargo::rustc-link-arg-benches=-Wl,--export-dynamic-symbol={symbols}");
    }
}
