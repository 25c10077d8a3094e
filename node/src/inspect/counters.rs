//! All counters of the port at one time.

use std::fmt::Write;
use std::time::Duration;

use bareverbs_core::firmware_cmds::register::PortCounterGroup;
use bareverbs_core::{Counters, Device, LinkLayer, PRIORITIES, Platform, RegisterError};

/// All counters of a device at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// The time, on the platform's clock.
    pub at: Duration,
    /// The values by group and name, in the same order each time.
    pub values: Vec<(String, u64)>,
}

/// `None` for what the device does not offer.
fn offered<T>(found: Result<T, RegisterError>) -> Result<Option<T>, RegisterError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(RegisterError::NotOffered { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads what the device counts of its port, and what its sensors measure.
///
/// # Errors
///
/// Those of the commands.
pub fn count<P: Platform>(device: &Device<'_, P>) -> Result<Count, RegisterError> {
    let mut values = Vec::new();
    let mut add = |group: &str, counters: Option<Counters>| {
        for counter in counters.iter().flat_map(Counters::iter) {
            let unit = counter
                .unit
                .map_or(String::new(), |unit| format!(".{unit}"));
            values.push((format!("{group}.{}{unit}", counter.name), counter.value));
        }
    };
    add("vport", device.query_vport_counters()?);
    let port = |group, priority| device.query_port_counters(group, priority);
    match device.capabilities().link_layer() {
        LinkLayer::Ethernet => {
            add("802.3", port(PortCounterGroup::Ieee8023, 0)?);
            add("rfc2863", port(PortCounterGroup::Rfc2863, 0)?);
            add("rfc2819", port(PortCounterGroup::Rfc2819, 0)?);
            add("extended", port(PortCounterGroup::Extended, 0)?);
            for priority in 0..PRIORITIES as u8 {
                let counters = port(PortCounterGroup::Priority, priority)?;
                add(&format!("priority{priority}"), counters);
            }
        }
        LinkLayer::InfiniBand => add("infiniband", port(PortCounterGroup::Infiniband, 0)?),
    }
    add("physical", port(PortCounterGroup::Physical, 0)?);
    add("congestion", offered(device.query_congestion_statistics())?);
    add("pcie", offered(device.query_pcie_counters())?);
    for sensor in offered(device.query_sensors())?.into_iter().flatten() {
        let Some(temperature) = offered(device.query_temperature(sensor))? else {
            continue;
        };
        // A counter cannot have values below zero, and `devinfo` shows none of zero.
        if let Ok(eighths) = u64::try_from(temperature.now.0) {
            let name = format!("temperature.sensor{sensor}.millidegrees");
            values.push((name, eighths * 125));
        }
    }
    let at = device.platform().now();
    Ok(Count { at, values })
}

impl Count {
    /// Lines of names and values, with the time before them.
    pub(super) fn to_lines(&self) -> String {
        let mut text = format!("nanoseconds {}\n", self.at.as_nanos());
        for (name, value) in &self.values {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name} {value}");
        }
        text
    }

    /// Reads such lines.
    pub(super) fn from_lines(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        let (_, at) = lines.next()?.filter(|(name, _)| name == "nanoseconds")?;
        let values = lines.collect::<Option<_>>()?;
        Some(Self {
            at: Duration::from_nanos(at),
            values,
        })
    }
}
