//! Temperatures that change, and the warning of one that is high.

use crate::bus::io::Io;
use crate::device::Device;
use bareverbs_firmware_cmds::event::EventType;

impl Device {
    /// A sensor measures another temperature. The driver is warned when it comes to the threshold from below.
    pub(crate) fn set_temperature(&mut self, io: &mut Io<'_>, number: u16, eighths: i16) {
        let mut sensors = self.config.sensors.iter_mut();
        let Some(sensor) = sensors.find(|sensor| sensor.number == number) else {
            return;
        };
        let before = sensor.temperature;
        sensor.temperature = eighths;
        sensor.highest = sensor.highest.max(eighths);
        let threshold = sensor.threshold;
        if before < threshold && eighths >= threshold && self.caps.general.temp_warn_event() {
            // One bit for each sensor, the highest numbers first.
            let sensors = 1_u128.checked_shl(number.into()).unwrap_or(0);
            let mut data = [0; 28];
            data[..16].copy_from_slice(&sensors.to_be_bytes());
            self.event(io, EventType::TemperatureWarning.number(), 0, &data);
        }
    }
}
