//! The option `--opts`, which several commands have.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::progress::quoted;

/// Lines of a file, for ibacm_opts.cfg.
#[derive(Debug, Args)]
pub struct OptionLines {
    /// Lines for ibacm_opts.cfg that the provider needs
    ///
    /// @HOSTS@ in a line stands for the path of the harness's hosts file (`address GID` a line; the names, IPv4 and IPv6
    /// addresses that are asked for), for a provider that has an option of its own for that.
    ///
    /// The harness itself sets log_level, timeout, retries, addr_preload and addr_data_file. A line of FILE comes behind
    /// these, and so counts instead; but checks set timeout, retries and sa_depth themselves where they are about deadlines
    /// and queries that are out, and what they set counts whatever FILE says.
    #[arg(long, value_name = "FILE")]
    pub opts: Option<PathBuf>,
}

impl OptionLines {
    /// The lines.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self) -> io::Result<Vec<String>> {
        let Some(file) = &self.opts else {
            return Ok(Vec::new());
        };
        let text = std::fs::read_to_string(file).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", file.display()))
        })?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The option as a shell takes it, with a blank before it; nothing if it was not given.
    pub fn again(&self) -> String {
        self.opts
            .as_ref()
            .map(|file| format!(" --opts {}", quoted(file)))
            .unwrap_or_default()
    }
}
