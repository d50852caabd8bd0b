//! Formats counts as text.

/// Returns a count with its noun, such as "2 checks".
pub(crate) fn counted(count: usize, what: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {what}{end}")
}

/// Returns a number of times in words.
pub(crate) fn times(count: u64) -> String {
    match count {
        0 => "never".into(),
        1 => "once".into(),
        _ => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(counted(0, "check"), "0 checks");
        assert_eq!(counted(1, "check"), "1 check");
        assert_eq!([times(0), times(1), times(2)], ["never", "once", "2 times"]);
    }
}
