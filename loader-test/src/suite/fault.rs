//! Faulty providers: a good one, in C, with one fault.
//!
//! Each check declares the fault that it must catch beside itself, by the macro `fault!`. Only tests make faulty providers of them,
//! with the feature `faults`. Without it there are no faults, and the program that operators get does not carry their texts.

#[cfg(feature = "faults")]
mod patch;

#[cfg(feature = "faults")]
pub use patch::{BadFault, DEPARTURES, EVERYTHING, Fault, NO_FAULT};

/// What is left of a fault without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[derive(Clone, Copy, Debug)]
pub struct Fault;

/// What is left of it without the feature `faults`.
#[cfg(not(feature = "faults"))]
pub const NO_FAULT: Fault = Fault;

/// The fault of a check, which may name `Fault` and `Status` without importing them. Without the feature `faults` it is empty.
#[cfg(feature = "faults")]
macro_rules! fault {
    ($fault:expr) => {{
        #[allow(unused_imports, reason = "a fault may be a constant")]
        use $crate::suite::{
            Status,
            fault::{EVERYTHING, Fault},
        };
        $fault
    }};
}

#[cfg(not(feature = "faults"))]
macro_rules! fault {
    ($fault:expr) => {
        $crate::suite::fault::Fault
    };
}
