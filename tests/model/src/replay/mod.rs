//! A card's recorded commands, played again in both directions.
//!
//! A [`Recording`] has a driver's commands and the card's answers, read from the log of Linux's driver or of this one
//! ([`trace`]).
//!
//! * Played **to a driver** ([`Model::replay`](crate::Model::replay)), the model answers with what the card answered: command by
//!   command, matched by opcode, `op_mod` and, where the answer describes the card, all else that was asked, in the order of the
//!   recording. The model still executes what the card did not refuse, so that objects exist, and their numbers are the
//!   model's. Where there is no record left, the model answers.
//! * Played **to the model** ([`Recording::play`]), the recorded commands are executed by a model, and its answers compared with
//!   the card's: a [`Difference`] for each field. Numbers of objects, addresses and counters are not compared.

mod compare;
mod live;
mod numbers;
mod play;

pub use compare::Difference;
pub(crate) use live::{Replay, Verdict, overlay};

use crate::config::{Config, PortType};
use crate::trace::{self, Trace};
use bareverbs_firmware_cmds::dump::opcode_name;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::DeliveryStatus;
use bareverbs_firmware_cmds::vport::QueryNicVportContextOut;
use zerocopy::FromBytes;

/// A card's answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The bytes of the answer, as many of them as the recording has.
    Bytes(Vec<u8>),
    /// It sent the entry back unexecuted, with this delivery status.
    Undelivered(u8),
    /// It never answered.
    None,
}

impl Answer {
    /// The status, if there is an answer with one.
    fn status(&self) -> Option<u8> {
        match self {
            Self::Bytes(bytes) => bytes.first().copied(),
            _ => None,
        }
    }
}

/// A command and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The line of the log on which it begins.
    pub line: usize,
    /// Opcode.
    pub opcode: u16,
    /// The driver's input, as much of it as the recording has.
    pub input: Vec<u8>,
    /// The length of the whole input.
    pub length: usize,
    /// The card's answer.
    pub answer: Answer,
}

impl Exchange {
    pub(crate) fn op_mod(&self) -> u16 {
        word(&self.input, 6)
    }

    /// The bytes of an answer that is no refusal.
    pub(crate) fn good(&self) -> Option<&[u8]> {
        match &self.answer {
            Answer::Bytes(bytes) if bytes.first() == Some(&0) => Some(bytes),
            _ => None,
        }
    }
}

/// The 16 bits at a byte, or 0 beyond the end.
fn word(bytes: &[u8], at: usize) -> u16 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// The card's answers to a driver's commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    exchanges: Vec<Exchange>,
    problems: Vec<String>,
}

impl Recording {
    /// Reads the log of a driver.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let Trace { commands, problems } = trace::read(text);
        let mut exchanges = Vec::new();
        for command in commands {
            // An answer without its input cannot be used.
            let Some(input) = command.input.filter(|input| input.bytes.len() >= 8) else {
                continue;
            };
            let answer = match command.output {
                Some(output) => match output.delivery {
                    Some(delivery) if !delivery.is_ok() => {
                        let mut numbers = 1..=u8::MAX >> 1;
                        let number =
                            numbers.find(|&nth| DeliveryStatus::from_number(nth) == delivery);
                        Answer::Undelivered(number.unwrap_or(u8::MAX >> 1))
                    }
                    _ => Answer::Bytes(output.bytes),
                },
                // The answer may be in lines that could not be read.
                None if !problems.is_empty() => continue,
                None => Answer::None,
            };
            exchanges.push(Exchange {
                line: command.line,
                opcode: command.opcode,
                length: input.length,
                input: input.bytes,
                answer,
            });
        }
        Self {
            exchanges,
            problems,
        }
    }

    /// The commands, in the order in which they were sent.
    #[must_use]
    pub fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// The problems that were found in the log.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The first answer to this command that is no refusal, if it has as many bytes.
    pub(crate) fn answer(&self, opcode: Opcode, op_mod: Option<u16>, len: usize) -> Option<&[u8]> {
        let mut all = self.exchanges.iter().filter(|exchange| {
            exchange.opcode == opcode.number()
                && op_mod.is_none_or(|op_mod| exchange.op_mod() == op_mod)
        });
        all.find_map(|exchange| exchange.good().filter(|bytes| bytes.len() >= len))
    }

    /// Gives a card the addresses of the recorded one, as they are in the recording.
    pub fn identify(&self, config: &mut Config) {
        let opcode = Opcode::QueryNicVportContext;
        let Some(context) = self
            .answer(opcode, Some(0), size_of::<QueryNicVportContextOut>())
            .and_then(|bytes| QueryNicVportContextOut::ref_from_prefix(bytes).ok())
            .map(|(output, _)| output.nic_vport_context())
        else {
            return;
        };
        if config.port_type == PortType::Ethernet {
            config.mac = context.permanent_mac();
        }
        config.node_guid = context.node_guid();
        config.port_guid = context.port_guid();
        config.system_image_guid = context.system_image_guid();
    }
}

/// Returns true if the answer to a command describes the card and its port, and not an object of the driver's.
fn describes_the_card(opcode: u16) -> bool {
    let name = opcode_name(opcode);
    Opcode::from_number(opcode) == Some(Opcode::AccessRegister)
        || [
            "QUERY_HCA_CAP",
            "QUERY_ADAPTER",
            "QUERY_PAGES",
            "QUERY_ISSI",
            "QUERY_VPORT",
            "QUERY_NIC_VPORT",
            "QUERY_HCA_VPORT",
            "QUERY_CONG",
        ]
        .iter()
        .any(|of| name.starts_with(of))
}
