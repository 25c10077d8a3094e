//! Names and values of a device, as text and as JSON.

use serde_json::json;

/// The report: names and values in order, those of the port from some place on.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<(String, Value)>,
    port_starts: Option<usize>,
}

enum Value {
    Text(String),
    Number(u64),
    Hex(u64),
}

impl Report {
    pub(crate) fn text(&mut self, name: &str, value: impl Into<String>) {
        self.lines.push((name.into(), Value::Text(value.into())));
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) {
        self.lines.push((name.into(), Value::Number(value)));
    }

    pub(crate) fn hex(&mut self, name: &str, value: u64) {
        self.lines.push((name.into(), Value::Hex(value)));
    }

    /// The last line was the port's first.
    pub(crate) fn in_port(&mut self) {
        self.port_starts = self.lines.len().checked_sub(1);
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (index, (name, value)) in self.lines.iter().enumerate() {
            let mut indent = if index == 0 { "" } else { "\t" };
            if let Some(start) = self.port_starts {
                if index == start {
                    text.push_str("\t\tport:\t1\n");
                }
                if index >= start {
                    indent = "\t\t\t";
                }
            }
            let value = match value {
                Value::Text(value) => value.clone(),
                Value::Number(value) => value.to_string(),
                Value::Hex(value) => format!("{value:#x}"),
            };
            text.push_str(&format!("{indent}{:<27} {value}\n", format!("{name}:")));
        }
        text
    }

    /// One object; the port's attributes in an object of their own. Numbers above 2^53 are text, as most readers of
    /// JSON would round them.
    pub(crate) fn to_json(&self) -> String {
        let members = |lines: &[(String, Value)]| {
            let members = lines.iter().map(|(name, value)| {
                let value = match value {
                    Value::Number(n) | Value::Hex(n) if *n < 1 << 53 => json!(n),
                    Value::Number(n) | Value::Hex(n) => json!(format!("{n:#x}")),
                    Value::Text(text) => json!(text),
                };
                format!("{}: {value}", json!(name))
            });
            members.collect::<Vec<_>>().join(", ")
        };
        let (device, port) = self
            .lines
            .split_at(self.port_starts.unwrap_or(self.lines.len()));
        format!("{{{}, \"port\": {{{}}}}}", members(device), members(port))
    }
}
