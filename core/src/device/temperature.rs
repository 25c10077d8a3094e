//! Sensors of temperature, and the counters of the link to the host.

use core::fmt;

use bareverbs_firmware_cmds::layout::Layout;
use bareverbs_firmware_cmds::register::{
    MpcntReg, MtcapReg, MtmpReg, PciePerformanceCounters, PmlpReg,
};
use bareverbs_firmware_cmds::values::RegisterId;
use zerocopy::IntoBytes;

use crate::device::Device;
use crate::device::counters::Counters;
use crate::device::module::Text;
use crate::device::register::RegisterError;
use crate::platform::Platform;
use crate::types::port::PORT;

/// Sensors from this number on are those of modules.
pub const MODULE_SENSORS: u16 = 64;

/// Degrees Celsius, in steps of an eighth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Celsius(pub i16);

impl fmt::Display for Celsius {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, eighths) = match self.0 {
            ..0 => ("-", self.0.unsigned_abs()),
            0.. => ("", self.0.unsigned_abs()),
        };
        write!(f, "{sign}{}.{:03}", eighths / 8, eighths % 8 * 125)
    }
}

impl fmt::Debug for Celsius {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reading of a sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Temperature {
    /// Its number.
    pub sensor: u16,
    /// Its name, if it has one.
    pub name: Text<8>,
    /// Now.
    pub now: Celsius,
    /// The most since that was enabled.
    pub highest: Celsius,
    /// From where on there is [`AsyncEvent::TemperatureWarning`](crate::AsyncEvent::TemperatureWarning).
    pub threshold: Celsius,
}

impl<P: Platform> Device<'_, P> {
    /// The numbers of the device's own sensors (MTCAP), of which there are at most 64.
    pub fn query_sensors(&self) -> Result<impl Iterator<Item = u16> + use<P>, RegisterError> {
        let mtcap = self.read_offered(RegisterId::Mtcap, MtcapReg::ZERO, MtcapReg::as_mut_bytes)?;
        let map = mtcap.sensor_map();
        Ok((0..MODULE_SENSORS).filter(move |sensor| map >> sensor & 1 != 0))
    }

    /// The number of the sensor of the port's module. A module may have none, and measures zero then.
    pub fn module_sensor(&self) -> Result<u16, RegisterError> {
        Ok(MODULE_SENSORS + u16::from(self.module_number()?))
    }

    /// The number of the port's module (PMLP).
    pub(super) fn module_number(&self) -> Result<u8, RegisterError> {
        let mut pmlp = PmlpReg::ZERO;
        pmlp.set_local_port(PORT);
        let pmlp = self.read_offered(RegisterId::Pmlp, pmlp, PmlpReg::as_mut_bytes)?;
        Ok(pmlp.lane0_module_mapping() as u8)
    }

    /// Reads a sensor (MTMP).
    pub fn query_temperature(&self, sensor: u16) -> Result<Temperature, RegisterError> {
        if sensor >= 1 << 12 {
            return Err(RegisterError::Argument {
                what: "a sensor's number above 4095",
            });
        }
        let mut mtmp = MtmpReg::ZERO;
        mtmp.set_sensor_index(sensor);
        let mtmp = self.read_offered(RegisterId::Mtmp, mtmp, MtmpReg::as_mut_bytes)?;
        let name = u64::from(mtmp.sensor_name_hi()) << 32 | u64::from(mtmp.sensor_name_lo());
        let celsius = |eighths: u16| Celsius(eighths.cast_signed());
        Ok(Temperature {
            sensor,
            name: Text::new(name.to_be_bytes()),
            now: celsius(mtmp.temperature()),
            highest: celsius(mtmp.max_temperature()),
            threshold: celsius(mtmp.temp_threshold_hi()),
        })
    }

    /// Errors and stalls of the PCI Express link (MPCNT).
    pub fn query_pcie_counters(&self) -> Result<Counters, RegisterError> {
        let mcam = self.mcam()?;
        if !mcam.enhanced_features().pcie_performance_group() {
            return Err(RegisterError::NotOffered {
                capability: "pcie_performance_group",
            });
        }
        let mpcnt = self.read_offered(RegisterId::Mpcnt, MpcntReg::ZERO, MpcntReg::as_mut_bytes)?;
        let of = PciePerformanceCounters::DESCRIPTOR;
        Ok(Counters::new(of, mpcnt.counter_set()))
    }
}
