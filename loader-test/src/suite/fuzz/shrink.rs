//! Shrinks a failing sequence.

use std::io;
use std::time::Instant;

/// Removes actions that the failure does not need: halves, quarters, down to single actions. `fails` says whether a part still
/// fails. Stops at the time limit; returns whether it finished.
///
/// # Errors
/// The errors of `fails`.
pub(super) fn shrink<T: Clone>(
    items: &mut Vec<T>,
    end: Instant,
    mut fails: impl FnMut(&[T]) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut chunk = items.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        let mut is_shorter = false;
        while start < items.len() {
            if Instant::now() >= end {
                return Ok(false);
            }
            let mut shorter = items.clone();
            shorter.drain(start..(start + chunk).min(items.len()));
            if fails(&shorter)? {
                *items = shorter;
                is_shorter = true;
            } else {
                start += chunk;
            }
        }
        // A removed action may have been the only one that needed another.
        chunk = match chunk {
            1 if is_shorter => 1,
            chunk => chunk / 2,
        };
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn only_what_is_needed_stays() {
        let mut items: Vec<u32> = (0..60).collect();
        let needs = |part: &[u32]| Ok([7, 8, 41].iter().all(|needed| part.contains(needed)));
        assert!(shrink(&mut items, later(), needs).unwrap());
        assert_eq!(items, [7, 8, 41]);
    }

    #[test]
    fn what_needs_each_other_goes_together_in_the_end() {
        // 10 is needed while 50 is present, which is tried only after it.
        let mut items: Vec<u32> = (0..60).collect();
        let needs = |part: &[u32]| {
            let has = |number| part.contains(&number);
            Ok(has(30) && (has(10) || !has(50)))
        };
        assert!(shrink(&mut items, later(), needs).unwrap());
        assert_eq!(items, [30]);
    }

    #[test]
    fn nothing_may_be_needed() {
        let mut items = vec![1, 2, 3];
        assert!(shrink(&mut items, later(), |_| Ok(true)).unwrap());
        assert!(items.is_empty());
    }

    #[test]
    fn it_ends_with_the_time() {
        let mut items: Vec<u32> = (0..60).collect();
        assert!(!shrink(&mut items, Instant::now(), |_| Ok(true)).unwrap());
        assert_eq!(items.len(), 60);
        assert!(shrink(&mut items, later(), |_| Err(io::Error::other("no"))).is_err());
    }
}
