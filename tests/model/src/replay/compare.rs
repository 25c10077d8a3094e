//! Compares the card's answers with the model's, field by field.

use super::numbers::is_arbitrary;
use bareverbs_firmware_cmds::decode::{self, Item, Show, Value};
use bareverbs_firmware_cmds::dump::{Direction, opcode_name};
use std::collections::HashMap;
use std::fmt;

/// A field in which the model's answer to a recorded command is not the card's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The line of the recording on which the command begins.
    pub line: usize,
    /// The command's opcode.
    pub opcode: u16,
    /// Its `op_mod`.
    pub op_mod: u16,
    /// The field's name, behind those of the structures around it.
    pub field: String,
    /// The card's value.
    pub card: String,
    /// The model's value.
    pub model: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            opcode,
            op_mod,
            field,
            card,
            model,
        } = self;
        let name = opcode_name(*opcode);
        write!(
            f,
            "line {line}: {name}({opcode:#x}) op_mod {op_mod:#x}: {field}: the card {card}, the model {model}"
        )
    }
}

/// The fields in which the two answers to a command differ: name, the card's value, the model's. `input` is the command's.
pub(super) fn answers(
    opcode: u16,
    input: &[u8],
    card: &[u8],
    model: &[u8],
) -> Vec<(String, String, String)> {
    let known = card.len().min(model.len());
    let [card, model] = [card, model].map(|bytes| fields(opcode, input, &bytes[..known]));
    let places: HashMap<_, _> = model.iter().map(|(name, value)| (name, value)).collect();
    let shown = |value: Option<&String>| value.map_or_else(|| "nothing".to_owned(), String::clone);
    let mut found = Vec::new();
    for (name, value) in &card {
        let other = places.get(name).copied();
        if other != Some(value) {
            found.push((name.clone(), value.clone(), shown(other)));
        }
    }
    for (name, value) in &model {
        if !card.iter().any(|(other, _)| other == name) {
            found.push((name.clone(), shown(None), value.clone()));
        }
    }
    found
}

/// The fields of an answer that can be compared, by their names with those of the structures around them.
fn fields(opcode: u16, input: &[u8], bytes: &[u8]) -> Vec<(String, String)> {
    let mut around: Vec<String> = Vec::new();
    let mut found = Vec::new();
    let mut visit = |item: Item<'_>| {
        around.truncate(item.depth);
        let index = item.index.map(|index| format!("[{index}]"));
        let name = format!("{}{}", item.name, index.unwrap_or_default());
        let value = match item.value {
            Value::Structure => {
                around.push(name);
                return;
            }
            // The syndrome of a refusal says which place of the firmware refused.
            _ if is_arbitrary(item.name) || item.name == "syndrome" => return,
            Value::Number(number, meaning) => match meaning {
                Some(meaning) => format!("{number:#x} ({meaning})"),
                None => format!("{number:#x}"),
            },
            Value::UnknownBits { at, bits } => {
                let name = [&around[..], &[format!("@{at:#x}")]].concat().join(".");
                found.push((name, format!("{bits:#010x}")));
                return;
            }
            Value::Raw { at, bytes } => {
                let name = [&around[..], &[format!("@{at:#x}")]].concat().join(".");
                found.push((name, hex(bytes)));
                return;
            }
            Value::Bytes(bytes) => hex(bytes),
            Value::Truncated { .. } => return,
        };
        found.push(([&around[..], &[name]].concat().join("."), value));
    };
    decode::message(
        opcode,
        Direction::Output,
        bytes,
        input,
        Show::All,
        &mut visit,
    );
    found
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
