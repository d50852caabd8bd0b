//! In the recorded environment, a cached resolve takes no more instructions than recorded; elsewhere the counts
//! are shown.

use benches::count::build;
use benches::recorded::{self, Counts};

#[test]
fn a_hit_takes_no_more_instructions_than_it_did() {
    let built = build().unwrap();
    let counts = Counts::make(&built.program, &[("path-cache", &built.library)]).unwrap();
    let comparison = counts.compare(&Counts::read(&recorded::file()).unwrap());
    println!("{comparison}");
    assert!(!comparison.is_regression(), "{comparison}");
}
