//! Reads what was recorded of a card: a report, or the log of a driver.

use super::recorded;
use super::{Card, Profile, ProfileError};
use crate::replay::Recording;
use bareverbs_firmware_cmds::dump::Line;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::values::{CapabilityGroup, CapabilityMode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The size of the largest file that is read. The log of a driver's whole start has less than a tenth of it.
const LONGEST: u64 = 64 << 20;
/// A capability group's bytes, and those of the init segment's first part.
const LARGEST_DUMP: u32 = 0x1000;

/// The dwords that are known of a structure, by their byte offset.
pub(super) type Dump = BTreeMap<usize, [u8; 4]>;

/// A card's report, as `devinfo --report` writes it, unpacked; or a log of a driver's commands, or a file of hex dumps. What is
/// not in it is unknown.
#[derive(Debug, Clone, Default)]
pub struct Report {
    name: String,
    recording: Recording,
    about: BTreeMap<String, String>,
    pub(super) init_segment: Dump,
    /// The known dwords of each group, by its number and by `true` for current values or `false` for maxima.
    capabilities: BTreeMap<(u16, bool), Dump>,
}

impl Report {
    /// Reads files: their names and their texts. `name` is the report's.
    ///
    /// # Errors
    /// If a dump cannot be read, or if there is nothing of a card.
    pub fn new<'t>(
        name: impl Into<String>,
        files: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Result<Self, ReportError> {
        let mut report = Self {
            name: name.into(),
            ..Self::default()
        };
        for (file, text) in files {
            report.file(file, text)?;
        }
        let nothing = report.recording.exchanges().is_empty()
            && report.init_segment.is_empty()
            && report.capabilities.values().all(Dump::is_empty);
        if nothing {
            return Err(ReportError::Nothing { name: report.name });
        }
        Ok(report)
    }

    /// Reads a folder with the files of a report, or a file.
    ///
    /// # Errors
    /// If it cannot be read, or as [`new`](Self::new).
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let failed = |path: &Path, why: std::io::Error| ReportError::File {
            file: path.display().to_string(),
            why: why.to_string(),
        };
        let paths = if path.is_dir() {
            let entries = std::fs::read_dir(path).map_err(|why| failed(path, why))?;
            let entries = entries.collect::<Result<Vec<_>, _>>();
            let entries = entries.map_err(|why| failed(path, why))?;
            let mut paths: Vec<_> = entries.iter().map(std::fs::DirEntry::path).collect();
            paths.retain(|path| path.extension().is_some_and(|end| end == "txt"));
            paths.sort();
            paths
        } else {
            vec![path.to_owned()]
        };
        let mut files = Vec::new();
        for path in &paths {
            let size = std::fs::metadata(path).map_err(|why| failed(path, why))?;
            if size.len() > LONGEST {
                return Err(failed(path, std::io::ErrorKind::FileTooLarge.into()));
            }
            let bytes = std::fs::read(path).map_err(|why| failed(path, why))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.push((
                name.into_owned(),
                String::from_utf8_lossy(&bytes).into_owned(),
            ));
        }
        let files = files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()));
        Self::new(path.display().to_string(), files)
    }

    fn file(&mut self, name: &str, text: &str) -> Result<(), ReportError> {
        if text.contains("dump command ") && self.recording.exchanges().is_empty() {
            self.recording = Recording::read(text);
        }
        if name == "about.txt" {
            let lines = text.lines().filter_map(|line| line.split_once(": "));
            self.about
                .extend(lines.map(|(key, value)| (key.trim().into(), value.trim().into())));
        }
        let mut commands = false;
        let mut into: Option<&mut Dump> = None;
        for (line, at) in text.lines().zip(1..) {
            let wrong = |what| ReportError::Line {
                file: name.to_owned(),
                line: at,
                what,
            };
            // Linux's driver logs this line when it starts.
            if let Some((_, version)) = line.split_once("firmware version: ") {
                let version = version.split_whitespace().next().unwrap_or_default();
                self.about
                    .entry("firmware version".into())
                    .or_insert_with(|| version.into());
            }
            if let Some(title) = line.strip_prefix("## ") {
                into = match kind(title) {
                    Some(Kind::InitSegment) => Some(&mut self.init_segment),
                    Some(Kind::Capabilities(group, current)) => {
                        Some(self.capabilities.entry((group, current)).or_default())
                    }
                    None => None,
                };
                commands = false;
                continue;
            }
            match Line::parse(line) {
                // The rows of commands are read by `Recording`.
                Line::Start { .. } => commands = true,
                Line::Row { offset, bytes, .. } if !commands => {
                    let Some(dump) = &mut into else { continue };
                    if !offset.is_multiple_of(4) || offset > LARGEST_DUMP - 16 {
                        return Err(wrong("no offset of a dword in the structure"));
                    }
                    let (dwords, _) = bytes.as_chunks::<4>();
                    dump.extend((offset as usize..).step_by(4).zip(dwords.iter().copied()));
                }
                Line::Malformed(what) if !commands && into.is_some() => return Err(wrong(what)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The report's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The commands that were recorded.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// The text of a profile of this card: what the report has, and the rest as `base` has it; without `base`, as the built-in
    /// card of the same PCI device or firmware has it.
    ///
    /// # Errors
    /// If there is no such built-in card.
    pub fn profile(&self, base: Option<Card>) -> Result<String, ReportError> {
        let base = base.or_else(|| self.base()).ok_or(ReportError::NoBase)?;
        Ok(recorded::profile(self, base))
    }

    /// The card of [`profile`](Self::profile), read.
    ///
    /// # Errors
    /// If there is no such built-in card, or if the report says what the model cannot be.
    pub fn card(&self, base: Option<Card>) -> Result<Profile, ReportError> {
        let text = self.profile(base)?;
        Profile::parse(self.name.clone(), &text).map_err(ReportError::Profile)
    }

    /// The built-in card that is most like this one.
    fn base(&self) -> Option<Card> {
        let device = self.device_id();
        let major = self.firmware().map(|(major, ..)| major);
        let all = || Card::ALL.iter().copied();
        // Built-in cards of the same kind differ in the function that they describe.
        let embedded = self.embedded_cpu();
        let by_device = |card: &Card| {
            let config = card.config();
            Some(config.device_id) == device && embedded.is_none_or(|is| is == config.embedded_cpu)
        };
        let by_firmware = |card: &Card| {
            let config = card.config();
            let own = embedded.is_none_or(|is| is == config.embedded_cpu);
            Some(config.firmware.0) == major && own && !config.is_virtual()
        };
        let found = match device {
            Some(_) => all().find(by_device),
            None => None,
        };
        found.or_else(|| all().find(by_firmware))
    }

    /// A line of `about.txt`.
    pub(super) fn about(&self, key: &str) -> Option<&str> {
        self.about.get(key).map(String::as_str)
    }

    /// The second of the PCI IDs.
    pub(super) fn device_id(&self) -> Option<u16> {
        let (_, device) = self.about("pci ids")?.split_once(':')?;
        u16::from_str_radix(device.get(..4)?, 16).ok()
    }

    /// A number of `about.txt`.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        let text = self.about(key)?.split_whitespace().next()?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// A dword of the init segment.
    pub(super) fn register(&self, at: usize) -> Option<u32> {
        let dword = self.init_segment.get(&at)?;
        Some(u32::from_be_bytes(*dword))
    }

    pub(super) fn embedded_cpu(&self) -> Option<bool> {
        self.register(0x1fc).map(|register| register >> 23 & 1 != 0)
    }

    pub(super) fn firmware(&self) -> Option<(u16, u16, u16)> {
        if let (Some(first), Some(second)) = (self.register(0), self.register(4)) {
            return Some((first as u16, (first >> 16) as u16, second as u16));
        }
        let text = self.about("firmware version")?.split_whitespace().next()?;
        let mut parts = text.split('.').map(str::parse);
        match [parts.next(), parts.next(), parts.next()] {
            [Some(Ok(major)), Some(Ok(minor)), Some(Ok(sub))] => Some((major, minor, sub)),
            _ => None,
        }
    }

    /// The known dwords of a capability group. Answers to commands replace those of dumps: a driver asks before it sets anything.
    pub(super) fn group(&self, group: CapabilityGroup, mode: CapabilityMode) -> Dump {
        let mut known = self
            .capabilities
            .get(&(group.number(), mode == CapabilityMode::Current))
            .cloned()
            .unwrap_or_default();
        let asked = Some(group.query(mode));
        if let Some(answer) = self.recording.answer(Opcode::QueryHcaCap, asked, 0x20) {
            let (dwords, _) = answer[0x10..].as_chunks::<4>();
            known.extend((0..).step_by(4).zip(dwords.iter().copied()));
        }
        known
    }

    /// The numbers of all groups of which something is known.
    pub(super) fn groups(&self) -> BTreeSet<u16> {
        let dumped = self.capabilities.keys().map(|&(group, _)| group);
        let asked = self.recording.exchanges().iter().filter_map(|exchange| {
            let query = exchange.opcode == Opcode::QueryHcaCap.number();
            (query && exchange.good().is_some()).then(|| exchange.op_mod() >> 1)
        });
        dumped.chain(asked).collect()
    }
}

/// The subject of a dump.
enum Kind {
    InitSegment,
    /// The group's number, and true for current values or false for maxima.
    Capabilities(u16, bool),
}

fn kind(title: &str) -> Option<Kind> {
    if title.starts_with("init segment") {
        return Some(Kind::InitSegment);
    }
    let (_, rest) = title.split_once("(capability type ")?;
    let (number, mode) = rest.split_once(')')?;
    let number = number.trim().parse().ok()?;
    let mode = mode.trim_start_matches([',', ' ']);
    match mode {
        _ if mode.starts_with("current") => Some(Kind::Capabilities(number, true)),
        _ if mode.starts_with("maximum") => Some(Kind::Capabilities(number, false)),
        _ => None,
    }
}

/// An error in a [`Report`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// A file cannot be read.
    #[error("{file}: {why}")]
    File {
        /// Its path.
        file: String,
        /// The reason.
        why: String,
    },
    /// A dump cannot be read.
    #[error("{file}, line {line}: {what}")]
    Line {
        /// The file.
        file: String,
        /// The line's number, from 1.
        line: usize,
        /// The error in the line.
        what: &'static str,
    },
    /// The report has neither a command nor a dump.
    #[error("{name}: neither commands nor dumps of capabilities are in it")]
    Nothing {
        /// The report's name.
        name: String,
    },
    /// The report does not name its card, or no built-in card is of that kind.
    #[error(
        "neither PCI IDs nor firmware version say which built-in card this one is most like; name it"
    )]
    NoBase,
    /// The model cannot be this card.
    #[error("{0}")]
    Profile(ProfileError),
}
