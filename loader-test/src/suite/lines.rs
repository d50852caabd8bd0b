//! The options `--opts` and `--opt` of all commands that run a provider.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::progress::quoted;

/// Lines for ibacm_opts.cfg.
#[derive(Debug, Default, Args)]
pub struct OptionLines {
    /// A file of lines for ibacm_opts.cfg that the provider needs
    ///
    /// In a line, @HOSTS@ stands for the path of the harness's hosts file (lines of `address GID`), for a provider with its
    /// own option for a hosts file. In `check`, `trace`, `fuzz` and `info` the file holds the names, IPv4 and IPv6 addresses
    /// that the checks resolve; in `stock` and `demo` it holds the addresses of the hosts. In `stock` and `demo`, /run is the
    /// host's folder.
    ///
    /// The harness sets log_level, timeout, retries, addr_preload and addr_data_file. Lines of FILE come later and override
    /// these. Checks of deadlines and of outstanding queries set timeout, retries and sa_depth themselves, which FILE cannot
    /// override.
    #[arg(long, value_name = "FILE")]
    pub opts: Option<PathBuf>,
    /// One more line, after those of FILE; can be given several times
    #[arg(long = "opt", value_name = "NAME VALUE", value_parser = line)]
    pub single: Vec<String>,
}

impl OptionLines {
    /// Returns the lines of the file and of the command line.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        if let Some(file) = &self.opts {
            let text = std::fs::read_to_string(file).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", file.display()))
            })?;
            lines.extend(text.lines().map(str::to_owned));
        }
        lines.extend(self.single.iter().cloned());
        Ok(lines)
    }

    /// Returns the lines as names and values, without comments and empty lines.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_pairs(&self) -> io::Result<Vec<(String, String)>> {
        let lines = self.read()?;
        let lines = lines.iter().map(|line| line.trim());
        let wanted = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = wanted.map(|line| match line.split_once(char::is_whitespace) {
            Some((name, value)) => (name.to_owned(), value.trim().to_owned()),
            None => (line.to_owned(), String::new()),
        });
        Ok(pairs.collect())
    }

    /// Returns the options quoted for a shell, each after a blank.
    pub fn again(&self) -> String {
        let file = self.opts.iter();
        let file = file.map(|file| format!(" --opts {}", quoted(file)));
        let single = self.single.iter();
        file.chain(single.map(|line| format!(" --opt {}", quoted(line))))
            .collect()
    }
}

/// Parses `NAME VALUE` or `NAME=VALUE`.
fn line(text: &str) -> Result<String, String> {
    let (name, value) = text
        .split_once(|end: char| end == '=' || end.is_whitespace())
        .unwrap_or_default();
    if name.is_empty() || value.trim().is_empty() || text.contains(['\n', '\r']) {
        return Err("expected \"NAME VALUE\" or NAME=VALUE, in one line".to_owned());
    }
    Ok(format!("{name} {}", value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_name_and_a_value() {
        for text in ["a_name a value", "a_name=a value", "a_name \t a value "] {
            assert_eq!(line(text).unwrap(), "a_name a value", "{text:?}");
        }
        assert_eq!(line("a b=c").unwrap(), "a b=c");
        for text in [
            "", "lonely", "=value", " value", "name=", "name ", "a b\nc d",
        ] {
            assert!(line(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn single_lines_come_behind_the_files_and_are_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("opts");
        std::fs::write(&file, "# a comment\n\n one  1 2\nlonely\n").unwrap();
        let lines = OptionLines {
            opts: Some(file.clone()),
            single: vec!["two 2".into()],
        };
        assert_eq!(lines.read().unwrap().len(), 5);
        let pairs = [("one", "1 2"), ("lonely", ""), ("two", "2")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(lines.read_pairs().unwrap(), pairs);
        assert_eq!(
            lines.again(),
            format!(" --opts {} --opt 'two 2'", file.display())
        );
    }
}
