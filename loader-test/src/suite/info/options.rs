//! Prints the options that a library declares: for `info`, as a sample file, and as a Markdown table.

use acm_prov_api::options::OptionInfo;
use serde::{Deserialize, Serialize};

/// One option.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShownOption {
    name: String,
    kind: String,
    unit: String,
    default: String,
    range: String,
    help: String,
}

impl From<&OptionInfo> for ShownOption {
    fn from(option: &OptionInfo) -> Self {
        Self {
            name: option.key.to_string(),
            kind: option.kind.to_string(),
            unit: option.unit.to_string(),
            default: option.default.to_string(),
            range: option.range.to_string(),
            help: option.summary.to_string(),
        }
    }
}

impl ShownOption {
    /// Returns a line for `info`.
    pub(super) fn line(&self) -> String {
        let Self { name, help, .. } = self;
        format!("{name:<28} {help} ({}; {})", self.value(", "), self.default)
    }

    /// Describes the value: `number, ms, 0 to 3600000`.
    fn value(&self, between: &str) -> String {
        let parts = [&self.kind, &self.unit, &self.range];
        let parts: Vec<&str> = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(String::as_str)
            .collect();
        parts.join(between)
    }
}

/// Returns commented lines for ibacm_opts.cfg.
pub(super) fn sample(provider: &str, options: &[ShownOption]) -> String {
    let mut text = format!(
        "# Options of {provider} for ibacm_opts.cfg. Remove the \"#\" of a line to set its option. Separate name and value\n\
         # with a space.\n"
    );
    for option in options {
        let ShownOption {
            name,
            default,
            help,
            ..
        } = option;
        text += &format!(
            "\n# {help}\n# ({})\n#{name} {default}\n",
            option.value(", ")
        );
    }
    text
}

/// Returns a Markdown table.
pub(super) fn table(options: &[ShownOption]) -> String {
    let mut text =
        String::from("| option | default | value | meaning |\n| --- | --- | --- | --- |\n");
    for option in options {
        let value = option.value(", ").replace('|', "\\|");
        text += &format!(
            "| `{}` | `{}` | {value} | {} |\n",
            option.name, option.default, option.help
        );
    }
    text
}
