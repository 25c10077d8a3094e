//! Reads a card's file.

use super::value::{Source, Value};
use crate::config::{Config, FunctionKind};
use bareverbs_firmware_cmds::caps::{
    AtomicCaps, DeviceMemCap, EthernetOffloadCaps, FlowTableNicCap, HcaCap, HcaCap2, RoceCap,
};
use bareverbs_firmware_cmds::layout::{self, Descriptor, Kind, Layout};

/// A line that could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Error {
    pub(super) line: usize,
    pub(super) what: String,
}

/// The card of a file, with addresses of all zeros, and every value with its source.
///
/// If `modelled`, the sections count that take back what the model does not do.
pub(super) fn parse(text: &str, modelled: bool) -> Result<(Config, Vec<Value>), Error> {
    let mut reader = Reader {
        modelled,
        config: Config::nothing(),
        values: Vec::new(),
        sources: Vec::new(),
        section: String::new(),
        maxima: [false; 2],
    };
    for (line, at) in text.lines().zip(1..) {
        reader
            .line(line.trim())
            .map_err(|what| Error { line: at, what })?;
    }
    let Reader {
        mut config,
        values,
        maxima: [general, roce],
        ..
    } = reader;
    if !general {
        config.general_max = config.general;
    }
    if !roce {
        config.roce_max = config.roce;
    }
    match whole(&config) {
        Ok(()) => Ok((config, values)),
        Err(what) => Err(Error {
            line: text.lines().count().max(1),
            what,
        }),
    }
}

/// The card as a whole is one that the model can be.
fn whole(config: &Config) -> Result<(), String> {
    if !config.bar_size.is_power_of_two() || !BAR_SIZES.contains(&config.bar_size) {
        return Err("no bar_size in [function]".into());
    }
    let pages = config.bar_size / 4096;
    if u64::from(config.first_uar) >= pages {
        return Err(format!("first_uar is beyond the {pages} pages of the BAR"));
    }
    // Slots are in one page.
    if !(6..=12).contains(&config.log_cmdq_stride)
        || config.log_cmdq_size > 5
        || config.log_cmdq_size + config.log_cmdq_stride > 12
    {
        return Err("the command queue is more than a page, or has no slots of 64 bytes".into());
    }
    Ok(())
}

/// From the smallest that has room for the init segment and the MSI-X table to more than any card has.
const BAR_SIZES: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 40;

/// More pages than any card has asked for.
const MOST_PAGES: u32 = 1 << 24;

/// Ends the names of sections that take back what the model does not do.
const MODELLED: &str = " modelled";

struct Reader<'t> {
    modelled: bool,
    config: Config,
    values: Vec<Value>,
    /// Name, kind, document.
    sources: Vec<(&'t str, Source, &'t str)>,
    section: String,
    /// `true` for a section with the maxima of general and RoCE capabilities.
    maxima: [bool; 2],
}

impl<'t> Reader<'t> {
    fn line(&mut self, line: &'t str) -> Result<(), String> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if let Some(source) = line.strip_prefix("source ") {
            return self.source(source);
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
        {
            return self.begin(name);
        }
        if let Some(source) = line.strip_prefix("hex ") {
            self.image()?.1.fill(0);
            return self.note("hex", "", source);
        }
        if let Some((offset, dwords)) = line.split_once(": ") {
            return self.dwords(offset, dwords);
        }
        let (field, rest) = line.split_once(" = ").ok_or("neither value nor section")?;
        let (value, source) = rest.rsplit_once(' ').ok_or("a value without its source")?;
        if self.section == "function" {
            function(&mut self.config, field, value)?;
        } else if let Some(group) = self.section.strip_suffix(MODELLED) {
            let group = group.to_owned();
            self.take_back(&group, field, value)?;
        } else {
            let (of, image) = self.image()?;
            set(of, image, field, value)?;
        }
        self.note(field, value, source)
    }

    /// `NAME = KIND: DOCUMENT`.
    fn source(&mut self, text: &'t str) -> Result<(), String> {
        let (name, rest) = text.split_once(" = ").ok_or("a source without its kind")?;
        let (kind, document) = rest.split_once(": ").ok_or("a source without document")?;
        let kind = match kind {
            "recorded" => Source::Recorded,
            "public" => Source::Public,
            "assumed" => Source::Assumed,
            "withheld" => Source::Withheld,
            other => return Err(format!("sources are not {other}")),
        };
        self.sources.push((name.trim(), kind, document));
        Ok(())
    }

    fn begin(&mut self, name: &str) -> Result<(), String> {
        name.clone_into(&mut self.section);
        match name {
            "general max" => {
                self.config.general_max = self.config.general;
                self.maxima[0] = true;
            }
            "roce max" => {
                self.config.roce_max = self.config.roce;
                self.maxima[1] = true;
            }
            "function" => return Ok(()),
            _ => {}
        }
        self.image().map(drop)
    }

    /// Takes back what the model does not do, in the current values and in the maximum.
    fn take_back(&mut self, group: &str, field: &str, value: &str) -> Result<(), String> {
        let max = format!("{group} max");
        let maximum = self.group(&max).is_ok();
        for name in [group, &max].into_iter().take(1 + usize::from(maximum)) {
            let modelled = self.modelled;
            let (of, image) = self.group(name)?;
            let mut changed = image.to_vec();
            set(of, &mut changed, field, value)?;
            if modelled {
                image.copy_from_slice(&changed);
            }
        }
        Ok(())
    }

    /// The capability group that the section is about.
    fn image(&mut self) -> Result<(&'static Descriptor, &mut [u8]), String> {
        let section = self.section.clone();
        let group = section.strip_suffix(MODELLED).unwrap_or(&section);
        self.group(group)
    }

    fn group(&mut self, name: &str) -> Result<(&'static Descriptor, &mut [u8]), String> {
        let config = &mut self.config;
        Ok(match name {
            "general" => (HcaCap::DESCRIPTOR, &mut config.general.0[..]),
            "general max" => (HcaCap::DESCRIPTOR, &mut config.general_max.0[..]),
            "general 2" => (HcaCap2::DESCRIPTOR, &mut config.general_2.0[..]),
            "roce" => (RoceCap::DESCRIPTOR, &mut config.roce.0[..]),
            "roce max" => (RoceCap::DESCRIPTOR, &mut config.roce_max.0[..]),
            "atomic" => (AtomicCaps::DESCRIPTOR, &mut config.atomic.0[..]),
            "ethernet" => (EthernetOffloadCaps::DESCRIPTOR, &mut config.ethernet.0[..]),
            "flow" => (FlowTableNicCap::DESCRIPTOR, &mut config.flow_table.0[..]),
            "device memory" => (DeviceMemCap::DESCRIPTOR, &mut config.device_memory.0[..]),
            other => return Err(format!("there is no section [{other}]")),
        })
    }

    fn dwords(&mut self, offset: &str, dwords: &str) -> Result<(), String> {
        if self.values.last().is_none_or(|last| last.field != "hex") {
            return Err("dwords that no \"hex\" comes before".into());
        }
        let offset = usize::from_str_radix(offset, 16).map_err(|_| "no offset")?;
        let mut to = self.image()?.1.get_mut(offset..).unwrap_or_default();
        for dword in dwords.split_whitespace() {
            let dword = u32::from_str_radix(dword, 16).map_err(|_| "no dword")?;
            let (head, rest) = to
                .split_first_chunk_mut()
                .ok_or("beyond the end of the group")?;
            *head = dword.to_be_bytes();
            to = rest;
        }
        Ok(())
    }

    /// Keeps where a value comes from.
    fn note(&mut self, field: &str, value: &str, source: &str) -> Result<(), String> {
        let name = source
            .strip_prefix('(')
            .and_then(|name| name.strip_suffix(')'));
        let mut sources = self.sources.iter();
        let &(_, source, document) = sources
            .find(|&&(known, ..)| Some(known) == name)
            .ok_or_else(|| format!("{source} is no source"))?;
        let (section, field) = (self.section.clone(), field.to_owned());
        let twice = |value: &Value| value.section == section && value.field == field;
        if self.values.iter().any(twice) {
            return Err(format!("{field} twice"));
        }
        self.values.push(Value {
            section,
            field,
            value: value.to_owned(),
            source,
            document: document.to_owned(),
        });
        Ok(())
    }
}

fn number(text: &str) -> Result<u64, String> {
    let radix = |digits, radix| u64::from_str_radix(digits, radix);
    match (text.strip_prefix("0x"), text.strip_prefix("0b")) {
        (Some(digits), _) => radix(digits, 16),
        (_, Some(digits)) => radix(digits, 2),
        _ => text.parse(),
    }
    .map_err(|_| format!("{text} is no number"))
}

/// Sets a value that is not a capability.
fn function(config: &mut Config, field: &str, value: &str) -> Result<(), String> {
    fn small<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
        T::try_from(number(text)?).map_err(|_| format!("{text} is too large"))
    }
    fn at_most<T: TryFrom<u64> + PartialOrd>(text: &str, most: T) -> Result<T, String> {
        small(text).and_then(|value| match value <= most {
            true => Ok(value),
            false => Err(format!("{text} is too large")),
        })
    }
    match field {
        "kind" => {
            config.function = match value {
                "physical" => FunctionKind::Physical,
                "virtual" => FunctionKind::Virtual,
                other => return Err(format!("functions are not {other}")),
            }
        }
        "firmware" => {
            let parts: Vec<&str> = value.split('.').collect();
            let &[major, minor, sub] = parts.as_slice() else {
                return Err("a firmware version has three parts".into());
            };
            config.firmware = (small(major)?, small(minor)?, small(sub)?);
        }
        "board_id" => {
            config.board_id = [0; 16];
            let to = config.board_id.get_mut(..value.len());
            to.ok_or("longer than 16 characters")?
                .copy_from_slice(value.as_bytes());
        }
        "hw_id" => config.hw_id = small(value)?,
        "device_id" => config.device_id = small(value)?,
        "virtual_device_id" => config.virtual_device_id = small(value)?,
        "embedded_cpu" => config.embedded_cpu = small::<u8>(value)? != 0,
        "vendor_specific_capability" => {
            config.vendor_specific_capability = small::<u8>(value)? != 0;
        }
        "supported_issi" => config.supported_issi = small(value)?,
        "log_cmdq_size" => config.log_cmdq_size = at_most(value, 5)?,
        "log_cmdq_stride" => config.log_cmdq_stride = at_most(value, 12)?,
        "bar_size" => {
            config.bar_size = number(value)?;
            if !config.bar_size.is_power_of_two() || !BAR_SIZES.contains(&config.bar_size) {
                return Err(format!("no BAR has a size of {value}"));
            }
        }
        "msix_vectors" => config.msix_vectors = at_most(value, 2048)?,
        "boot_pages" => config.boot_pages = at_most(value, MOST_PAGES)?,
        "init_pages" => config.init_pages = at_most(value, MOST_PAGES)?,
        "pcie_speed" => config.pcie_speed = small(value)?,
        "pcie_lanes" => config.pcie_lanes = small(value)?,
        "first_uar" => config.first_uar = small(value)?,
        "first_eqn" => config.first_eqn = at_most(value, 0xff)?,
        "min_wqe_inline_mode" => config.min_wqe_inline_mode = at_most(value, 3)?,
        other => return Err(format!("functions have no {other}")),
    }
    Ok(())
}

/// Sets a field of a capability group.
fn set(of: &Descriptor, image: &mut [u8], name: &str, value: &str) -> Result<(), String> {
    if let Some(place) = name.strip_prefix('@') {
        let bit = place.split_once('.').and_then(|(dword, bit)| {
            let (dword, bit) = (number(dword).ok()?, bit.parse::<u32>().ok()?);
            let inside = dword.is_multiple_of(4) && dword < image.len() as u64 && bit < 32;
            inside.then(|| dword as u32 * 8 + 31 - bit)
        });
        let bit = bit.ok_or_else(|| format!("{name} is no bit"))?;
        if of.fields.iter().any(|field| {
            matches!(field.kind, Kind::Bits)
                && (field.offset..field.offset + field.width).contains(&bit)
        }) {
            return Err(format!("{name} has a name"));
        }
        return set_bits(image, bit, 1, value);
    }
    let (head, inner) = match name.split_once('.') {
        Some((head, inner)) => (head, Some(inner)),
        None => (name, None),
    };
    let mut fields = of.fields.iter();
    let field = fields
        .find(|field| field.name == head)
        .ok_or_else(|| format!("{} has no {head}", of.name))?;
    let start = (field.offset / 8) as usize;
    match (field.kind, inner) {
        (Kind::Bits, None) => set_bits(image, field.offset, field.width, value),
        (Kind::Bytes, None) => {
            let to = &mut image[start..start + (field.width / 8) as usize];
            let digits = value.len() == 2 * to.len() && value.is_ascii();
            for (at, byte) in to.iter_mut().enumerate() {
                let pair = digits.then(|| &value[2 * at..2 * at + 2]);
                let parsed = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
                *byte = parsed.ok_or_else(|| format!("{value} is not the bytes of {name}"))?;
            }
            Ok(())
        }
        (Kind::Struct(part), Some(inner)) => {
            set(part, &mut image[start..start + part.size], inner, value)
        }
        _ => Err(format!("{name} is not a value")),
    }
}

fn set_bits(image: &mut [u8], offset: u32, width: u32, value: &str) -> Result<(), String> {
    let number = number(value)?;
    if width < 64 && number >> width != 0 {
        return Err(format!("{value} needs more than {width} bits"));
    }
    layout::set(image, offset, width, number);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(lines: &str) -> String {
        let text = format!("source a = assumed: for a test\n{lines}");
        let Error { line, what } = parse(&text, true).map(drop).unwrap_err();
        format!("line {line}: {what}")
    }

    #[test]
    fn values_go_where_they_belong() {
        let text = "
            # A comment.
            source a = assumed: for a test
            [function]
            device_id = 0x1234 (a)
            firmware = 1.2.3 (a)
            log_cmdq_size = 5 (a)
            log_cmdq_stride = 6 (a)
            bar_size = 0x10000 (a)
            [general]
            hex (a)
            010: 0000000e 00170000
            log_max_qp = 11 (a)
            @0x44.27 = 1 (a)
            [general max]
            log_max_qp = 12 (a)
            [roce]
            roce_address_table_size = 0b101 (a)
            [flow]
            flow_table_properties_nic_receive.ft_support = 1 (a)
            flow_table_properties_nic_receive.ft_field_support = ffeffe00000000000000000000000001 (a)";
        let (config, values) = parse(text, false).expect("a card");
        assert_eq!(config.device_id, 0x1234);
        assert_eq!(config.firmware, (1, 2, 3));
        assert_eq!(config.general.0[0x10..0x18], [0, 0, 0, 11, 0, 0x17, 0, 0]);
        assert_eq!(config.general.0[0x44], 0x08);
        assert_eq!(config.general_max.log_max_qp(), 12);
        assert_eq!(config.general_max.log_max_srq(), 0x17);
        assert_eq!(config.roce_max.roce_address_table_size(), 5);
        let receive = config.flow_table.flow_table_properties_nic_receive();
        assert!(receive.ft_support());
        assert_eq!(receive.ft_field_support()[..3], [0xff, 0xef, 0xfe]);
        assert_eq!(values.len(), 12);
        assert_eq!(values[5].field, "hex");
        assert_eq!(values[5].document, "for a test");
        // The same card without what the model does not do.
        let text = format!("{text}\n[general modelled]\nlog_max_srq = 3 (a)\n");
        for (modelled, expected) in [(false, [0x17, 0x17]), (true, [3, 3])] {
            let (config, _) = parse(&text, modelled).expect("a card");
            let limits = [config.general, config.general_max].map(|caps| caps.log_max_srq());
            assert_eq!(limits, expected);
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (lines, expected) in [
            (
                "[general]\nlog_max_qp = 1",
                "line 3: a value without its source",
            ),
            ("[general]\nlog_max_qp = 1 (b)", "line 3: (b) is no source"),
            ("[general]\nlog_max_qp = x (a)", "line 3: x is no number"),
            (
                "[general]\nlog_max_qp = 32 (a)",
                "line 3: 32 needs more than 5 bits",
            ),
            (
                "[general]\nlog_max_pq = 1 (a)",
                "line 3: cmd_hca_cap has no log_max_pq",
            ),
            ("[general]\n@0x40.31 = 1 (a)", "line 3: @0x40.31 has a name"),
            (
                "[general]\n@0x100.31 = 1 (a)",
                "line 3: @0x100.31 is no bit",
            ),
            (
                "[general]\n000: 1",
                "line 3: dwords that no \"hex\" comes before",
            ),
            (
                "[general]\nhex (a)\n0fc: 1 2",
                "line 4: beyond the end of the group",
            ),
            (
                "[general]\nhex (a)\nffc: 1",
                "line 4: beyond the end of the group",
            ),
            ("[colour]", "line 2: there is no section [colour]"),
            (
                "[function]\ncolour = 1 (a)",
                "line 3: functions have no colour",
            ),
            (
                "[function]\ndevice_id = 0x10000 (a)",
                "line 3: 0x10000 is too large",
            ),
            ("[function]\nkind = 1 (a)", "line 3: functions are not 1"),
            (
                "[function]\nbar_size = 0x11000 (a)",
                "line 3: no BAR has a size of 0x11000",
            ),
            (
                "[function]\nlog_cmdq_size = 6 (a)",
                "line 3: 6 is too large",
            ),
            (
                "[general]\nlog_max_qp = 3 (a)",
                "line 3: no bar_size in [function]",
            ),
            ("source b = seen: there", "line 2: sources are not seen"),
            (
                "[roce]\nl3_type = 1 (a)\nl3_type = 1 (a)",
                "line 4: l3_type twice",
            ),
            (
                "[flow]\nflow_table_properties_nic_receive = 1 (a)",
                "line 3: flow_table_properties_nic_receive is not a value",
            ),
        ] {
            assert_eq!(error(lines), expected);
        }
    }
}
