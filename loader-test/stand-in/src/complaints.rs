//! Finds a provider's complaints about its options.

/// Words that mark a complaint. A provider may also log its options without complaining, as the stock provider does.
const COMPLAINING: [&str; 14] = [
    "error",
    "no such",
    "could",
    "cannot",
    "can't",
    "not ",
    "unknown",
    "invalid",
    "ignor",
    "fail",
    "unrecogni",
    "malformed",
    "denied",
    "without",
];

/// Whether a level-0 log line complains about one of the lines of ibacm_opts.cfg.
pub(super) fn is_complaint(text: &str, options: &[(String, String)]) -> bool {
    let text = text.to_lowercase();
    COMPLAINING.iter().any(|word| text.contains(word))
        && options
            .iter()
            .any(|(name, value)| names(&text, name, value))
}

/// Whether a line is about an option: it names a file's path, or an option's name with a prefix. Names that are also ordinary
/// words, such as `timeout`, count only with their value.
fn names(text: &str, name: &str, value: &str) -> bool {
    let has = |word: &str| !word.is_empty() && text.contains(&*word.to_lowercase());
    (value.contains('/') && has(value)) || (has(name) && (name.contains('_') || has(value)))
}

/// Returns the options of a file's lines: name and value.
pub(super) fn pairs(lines: &[String]) -> Vec<(String, String)> {
    lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(char::is_whitespace).unwrap_or((line, "")))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_names_an_option_and_what_is_wrong() {
        let options = pairs(&[
            "timeout soon".to_owned(),
            "# a comment".to_owned(),
            "retries 1".to_owned(),
            "addr_data_file   /etc/hosts.data".to_owned(),
            "path_cache_size".to_owned(),
        ]);
        for (line, expected) in [
            (
                "mine: /etc/hosts.data: no such file; going on without it",
                true,
            ),
            (
                "acmp_parse_hosts_file: ERROR - couldn't open /etc/hosts.data",
                true,
            ),
            ("timeout soon: not a number; using 2000", true),
            ("Path_Cache_Size: unknown option", true),
            ("acmp_log_options: address data file /etc/hosts.data", false),
            ("acmp_log_options: retries 1", false),
            ("the SA does not answer: timeout", false),
            ("port 1 cannot be queried", false),
        ] {
            assert_eq!(is_complaint(line, &options), expected, "{line}");
        }
    }
}
