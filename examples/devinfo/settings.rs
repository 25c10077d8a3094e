//! The settings of the port, the data of its module, and the readings of sensors: as far as the device offers them.

use bareverbs::verbs::firmware_cmds::congestion::CongestionPoint;
use bareverbs::verbs::{Device, LinkLayer, Platform, RegisterError, Temperature};
use bareverbs_examples::Result;

use super::report::Report;

/// `None` for what the device does not offer.
pub(crate) fn offered<T>(
    found: std::result::Result<T, RegisterError>,
) -> std::result::Result<Option<T>, RegisterError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(RegisterError::NotOffered { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The readings of the device's own sensors.
pub(crate) fn temperatures<P: Platform>(device: &Device<'_, P>) -> Result<Vec<Temperature>> {
    let Some(sensors) = offered(device.query_sensors())? else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for sensor in sensors {
        all.extend(offered(device.query_temperature(sensor))?);
    }
    Ok(all)
}

/// The priorities of a mask.
fn priorities(mask: u8) -> String {
    let set = (0..8).filter(|priority| mask >> priority & 1 != 0);
    let set: Vec<String> = set.map(|priority| priority.to_string()).collect();
    match set.is_empty() {
        true => "none".into(),
        false => set.join(" "),
    }
}

/// Numbers with spaces between them.
fn numbers(all: &[u8]) -> String {
    let all: Vec<String> = all.iter().map(u8::to_string).collect();
    all.join(" ")
}

/// Adds what there is.
pub(crate) fn report<P: Platform>(report: &mut Report, device: &Device<'_, P>) -> Result<()> {
    match offered(device.query_module()) {
        Ok(None) => {}
        Ok(Some(module)) => {
            let (vendor, part, serial) = (module.vendor, module.part, module.serial);
            report.text(
                "module",
                format!("{}, {vendor} {part} {serial}", module.kind),
            );
            if let Some(temperature) = module.temperature {
                report.text("module_temperature", format!("{temperature} C"));
            }
        }
        // A module that does not answer is no reason to show nothing else.
        Err(error) => report.text("module", error.to_string()),
    }
    for temperature in temperatures(device)? {
        let (name, now, highest) = (temperature.name, temperature.now, temperature.highest);
        report.text(
            &format!("temperature[{}]", temperature.sensor),
            format!(
                "{name} {now} C, highest {highest}, warning from {}",
                temperature.threshold
            ),
        );
    }
    if device.capabilities().link_layer() != LinkLayer::Ethernet {
        return Ok(());
    }
    if let Some(fec) = offered(device.query_fec())? {
        report.text("fec", fec.map_or("none".into(), |fec| format!("{fec:?}")));
    }
    if let Some(flow) = offered(device.query_flow_control())? {
        let on = |on| if on { "on" } else { "off" };
        report.text(
            "pauses",
            format!("rx {}, tx {}", on(flow.obey_pauses), on(flow.send_pauses)),
        );
        let (rx, tx) = (priorities(flow.obey_pfc), priorities(flow.send_pfc));
        report.text("pfc_priorities", format!("rx {rx}, tx {tx}"));
    }
    if let Some(trust) = offered(device.query_trust())? {
        report.text("trust", format!("{trust:?}"));
    }
    if let Some(map) = offered(device.query_dscp_priorities())? {
        report.text("dscp_priorities", numbers(&map));
    }
    if let Some(classes) = offered(device.query_traffic_classes())? {
        report.text("traffic_classes", numbers(&classes));
    }
    for (point, prefix) in [
        (CongestionPoint::Reaction, "rp"),
        (CongestionPoint::Notification, "np"),
    ] {
        if let Some(parameters) = offered(device.query_congestion(point))? {
            for parameter in parameters.iter() {
                report.number(&format!("{prefix}_{}", parameter.name), parameter.value);
            }
        }
    }
    Ok(())
}
