//! Plays a recording to a model.

use super::compare::{self, Difference};
use super::numbers::Numbers;
use super::{Answer, Exchange, Recording, describes_the_card};
use crate::config::Config;
use crate::host::{Host, IommuFault};
use crate::model::Model;
use bareverbs_firmware_cmds::dump::opcode_name;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::registry;
use bareverbs_firmware_cmds::status::Status;
use bareverbs_firmware_cmds::values::{CAPABILITY_GROUP_SIZE, ManagePages};
use std::collections::HashMap;
use std::time::Duration;

const PAGE: u64 = 4096;
/// Pages of the host that the model may write.
const MOST_PAGES: usize = 1 << 16;
/// The longest message that is compared. Longer ones are lists of pages.
const LONGEST: usize = 0x2000;
/// The address of the first page that is given to the firmware. The recorded addresses are not used, as lists of them may be
/// incomplete.
const GIVEN: u64 = 1 << 56;

impl Recording {
    /// Sends the recorded commands to a model of this card, and compares its answers with the card's.
    #[must_use]
    pub fn play(&self, config: Config) -> Vec<Difference> {
        let mut player = Player {
            model: Model::new(config),
            host: Memory::default(),
            numbers: Numbers::default(),
            given: 0,
        };
        player.start();
        let mut found = Vec::new();
        for exchange in self.exchanges() {
            let (input, output) = player.execute(exchange);
            for (field, card, model) in differences(exchange, &input, &output) {
                found.push(Difference {
                    line: exchange.line,
                    opcode: exchange.opcode,
                    op_mod: exchange.op_mod(),
                    field,
                    card,
                    model,
                });
            }
            player.learn(exchange, &output);
        }
        found
    }
}

/// Compares the answers to one command.
fn differences(exchange: &Exchange, input: &[u8], output: &[u8]) -> Vec<(String, String, String)> {
    let ours = output.first().copied().unwrap_or_default();
    let differ = |card: String| vec![("status".to_owned(), card, status(ours))];
    match &exchange.answer {
        Answer::None => differ("no answer".into()),
        Answer::Undelivered(delivery) => differ(format!("delivery status {delivery:#x}")),
        Answer::Bytes(_) if exchange.answer.status() != Some(ours) => {
            differ(status(exchange.answer.status().unwrap_or_default()))
        }
        // Other answers have only the number of an object, or describe objects that lie at other addresses here.
        Answer::Bytes(card) if ours == 0 && has_fields(exchange.opcode) => {
            compare::answers(exchange.opcode, input, card, output)
        }
        Answer::Bytes(_) => Vec::new(),
    }
}

fn status(number: u8) -> String {
    format!(
        "{number:#x} ({})",
        Status::from_number(number).description()
    )
}

fn has_fields(opcode: u16) -> bool {
    describes_the_card(opcode) || opcode_name(opcode).starts_with("QUERY_")
}

struct Player {
    model: Model,
    host: Memory,
    numbers: Numbers,
    /// The number of pages that the firmware got.
    given: u64,
}

impl Player {
    /// Lets the card start, with a command queue that is not used.
    fn start(&mut self) {
        self.model.config_write(&mut self.host, 4, &[6, 0]);
        self.model.advance(&mut self.host, Duration::from_secs(60));
        self.model.bar_write(&mut self.host, 0x10, &[0; 4]);
        self.model.bar_write(&mut self.host, 0x14, &[0, 1, 0, 0]);
    }

    /// Executes a command. Returns the input as the model got it, and the model's answer.
    fn execute(&mut self, exchange: &Exchange) -> (Vec<u8>, Vec<u8>) {
        let opcode = Opcode::from_number(exchange.opcode);
        if opcode == Some(Opcode::EnableHca) && self.model.is_enabled() {
            // The next opening begins with a reset.
            self.model.function_reset();
            self.start();
        }
        let mut input = exchange.input.clone();
        // The part of the input that the recording lacks is zero.
        input.resize(exchange.length.min(LONGEST).max(input.len()), 0);
        input.resize(input.len().max(16), 0);
        if let Some(opcode) = opcode {
            let of = registry::command(opcode).input;
            let group = match opcode {
                Opcode::SetHcaCap => CAPABILITY_GROUP_SIZE,
                _ => 0,
            };
            input.resize(input.len().max(of.size + group), 0);
            self.numbers.translate(of, &mut input);
        }
        if opcode == Some(Opcode::ManagePages) && exchange.op_mod() == ManagePages::Give.number() {
            let wanted = u32::from_be_bytes([input[12], input[13], input[14], input[15]]);
            input.truncate(16);
            input.extend(self.pages(wanted.min(MOST_PAGES as u32)));
        }
        let answered = match &exchange.answer {
            Answer::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        let mut output = vec![0; answered.clamp(16, LONGEST)];
        if describes_the_card(exchange.opcode) || answered < 16 {
            output.resize(LONGEST, 0);
        }
        // Contexts lie in the firmware's pages. The model may need more of these than the card.
        while let Some(wanted) = self.model.execute(&mut self.host, &input, &mut output) {
            let mut give = vec![0; 16];
            give[..2].copy_from_slice(&Opcode::ManagePages.number().to_be_bytes());
            give[6..8].copy_from_slice(&ManagePages::Give.number().to_be_bytes());
            if self.model.config().embedded_cpu {
                give[8] = 0x80;
            }
            let wanted = wanted.clamp(1, 512);
            give[12..16].copy_from_slice(&wanted.to_be_bytes());
            give.extend(self.pages(wanted));
            let mut taken = [0; 16];
            let more = self.model.execute(&mut self.host, &give, &mut taken);
            if more.is_some() || taken[0] != 0 || self.given > MOST_PAGES as u64 {
                break;
            }
        }
        (input, output)
    }

    /// The addresses of `count` more pages.
    fn pages(&mut self, count: u32) -> Vec<u8> {
        let first = self.given;
        self.given += u64::from(count);
        (first..self.given)
            .flat_map(|page| (GIVEN + page * PAGE).to_be_bytes())
            .collect()
    }

    /// Notes the model's number of an object beside the recorded one.
    fn learn(&mut self, exchange: &Exchange, output: &[u8]) {
        let (Some(opcode), Some(card)) = (Opcode::from_number(exchange.opcode), exchange.good())
        else {
            return;
        };
        let name = opcode.name();
        let makes = name.starts_with("CREATE_") || name.starts_with("ALLOC_");
        if makes && output.first() == Some(&0) {
            let of = registry::command(opcode).output;
            self.numbers.learn(of, card, output);
        }
    }
}

/// A host with memory at every address, of which only pages that were written exist.
#[derive(Default)]
struct Memory(HashMap<u64, Box<[u8; PAGE as usize]>>);

impl Host for Memory {
    fn dma_read(&mut self, iova: u64, data: &mut [u8]) -> Result<(), IommuFault> {
        let (len, write) = (data.len(), false);
        let fault = IommuFault { iova, len, write };
        for (at, byte) in (0..).zip(data) {
            let address = iova.checked_add(at).ok_or(fault)?;
            let page = self.0.get(&(address / PAGE));
            *byte = page.map_or(0, |page| page[(address % PAGE) as usize]);
        }
        Ok(())
    }

    fn dma_write(&mut self, iova: u64, data: &[u8]) -> Result<(), IommuFault> {
        let (len, write) = (data.len(), true);
        let fault = IommuFault { iova, len, write };
        for (at, byte) in (0..).zip(data) {
            let address = iova.checked_add(at).ok_or(fault)?;
            if self.0.len() >= MOST_PAGES && !self.0.contains_key(&(address / PAGE)) {
                return Err(fault);
            }
            let page = self.0.entry(address / PAGE);
            let page = page.or_insert_with(|| Box::new([0; PAGE as usize]));
            page[(address % PAGE) as usize] = *byte;
        }
        Ok(())
    }

    fn interrupt(&mut self, _: u16) {}

    fn transmit(&mut self, _: &[u8]) {}
}
