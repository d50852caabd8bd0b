//! Counts the instructions of a cached resolve of path-cache, and prints them with the recorded counts and with
//! stock's.

use std::path::Path;
use std::process::ExitCode;

use benches::count::Error;
use benches::recorded::{self, Counts};

const STOCK: &str = "/usr/lib/x86_64-linux-gnu/ibacm/libibacmp.so";

fn main() -> ExitCode {
    let records = std::env::args()
        .skip(1)
        .any(|argument| argument == "--record");
    match run(records) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("counts: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(records: bool) -> Result<ExitCode, Error> {
    let built = benches::count::build()?;
    let mut libraries = vec![("path-cache", built.library.as_path())];
    let stock = Path::new(STOCK);
    if stock.exists() {
        libraries.push(("stock", stock));
    }
    let counts = Counts::make(&built.program, &libraries)?;
    if records {
        counts.write(&recorded::file())?;
    }
    let comparison = counts.compare(&Counts::read(&recorded::file())?);
    print!("{comparison}");
    Ok(u8::from(comparison.is_regression()).into())
}
