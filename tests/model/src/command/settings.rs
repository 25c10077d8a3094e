//! Registers of what drivers set of the port, and of what the card says of itself.

use super::Result;
use super::register_bytes::{input, output, port};
use crate::config::PortType;
use crate::device::Device;
use crate::port::module::MODULE_SENSORS;
use crate::port::settings::{PRIORITIES, Pauses, TRUST_DSCP, TRUST_PCP};
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::register::{
    EtsTcnConfigReg, McamReg, MciaReg, MpcntReg, MtcapReg, MtmpReg, PcamReg, PfccReg, PplmReg,
    QPDPM_PRIORITY, QcamReg, QetcReg, QpdpmReg, QptsReg, QtctReg, put_in_mask,
};
use bareverbs_firmware_cmds::values::RegisterId;
use zerocopy::{FromBytes, IntoBytes};

/// MCIA: how much of it comes before the data.
const MCIA_HEADER: usize = 16;
/// MCIA: data of a driver that does not know more, and of one that does.
const MCIA_DATA: [usize; 2] = [48, 128];
/// MCIA: no module.
const NO_EEPROM: u8 = 1;
/// MCIA: nothing answers at that address.
const I2C_ERROR: u8 = 9;
/// PPLM: no error correction.
const NO_FEC: u8 = 1 << 0;
/// PPLM: Reed-Solomon, RS(528,514), which 100GBASE-CR4 requires.
const RS_528: u8 = 1 << 2;

impl Device {
    /// Returns `true` if the card has the register, by the masks of its capabilities, if the register is in one of them.
    pub(super) fn has_register(&self, register: RegisterId) -> bool {
        let caps = &self.caps.general;
        let physical = !self.config.is_virtual();
        match register {
            RegisterId::Qcam => caps.qcam_reg(),
            RegisterId::Pcam => caps.pcam_reg(),
            RegisterId::Mcam => caps.mcam_reg(),
            RegisterId::Qpts | RegisterId::Qpdpm => caps.qcam_reg() && physical,
            RegisterId::Qetcr | RegisterId::Qtct => caps.ets() && physical,
            RegisterId::Pplm => {
                caps.pcam_reg() && physical && self.config.port_type == PortType::Ethernet
            }
            RegisterId::Mtcap | RegisterId::Mtmp | RegisterId::Mfrl | RegisterId::Mpcnt => {
                caps.mcam_reg() && physical
            }
            _ => true,
        }
    }

    fn mask(&self, registers: &[RegisterId]) -> [u8; 16] {
        let mut mask = [0; 16];
        for &register in registers {
            if self.has_register(register) {
                put_in_mask(&mut mask, register);
            }
        }
        mask
    }
}

pub(super) fn qcam(device: &Device, tail: &[u8], out: &mut [u8]) -> Result {
    let mut register: QcamReg = input(tail)?;
    if register.access_reg_group() == 0 {
        let registers = [RegisterId::Qpts, RegisterId::Qpdpm, RegisterId::Qcam];
        *register.qos_access_reg_cap_mask_mut() = device.mask(&registers);
    }
    Ok(output(out, &register)?)
}

pub(super) fn pcam(device: &Device, tail: &[u8], out: &mut [u8]) -> Result {
    let mut register: PcamReg = input(tail)?;
    if register.access_reg_group() == 0 {
        let registers = [
            RegisterId::Pcap,
            RegisterId::Pmlp,
            RegisterId::Pmtu,
            RegisterId::Ptys,
            RegisterId::Paos,
            RegisterId::Pfcc,
            RegisterId::Ppcnt,
            RegisterId::Pvlc,
            RegisterId::Pplm,
            RegisterId::Pcam,
        ];
        *register.port_access_reg_cap_mask_mut() = device.mask(&registers);
    }
    if register.feature_group() == 0 {
        register.enhanced_features_mut().set_pfcc_mask(true);
    }
    Ok(output(out, &register)?)
}

pub(super) fn mcam(device: &Device, tail: &[u8], out: &mut [u8]) -> Result {
    let mut register: McamReg = input(tail)?;
    if register.access_reg_group() == 0 {
        let registers = [
            RegisterId::Mtcap,
            RegisterId::Mtmp,
            RegisterId::Mcia,
            RegisterId::Mfrl,
            RegisterId::Mpcnt,
            RegisterId::Mcam,
        ];
        *register.mng_access_reg_cap_mask_mut() = device.mask(&registers);
    }
    if register.feature_group() == 0 {
        register
            .enhanced_features_mut()
            .set_mcia_32dwords(true)
            .set_pcie_performance_group(device.has_register(RegisterId::Mpcnt));
    }
    Ok(output(out, &register)?)
}

/// Flow control: what the driver sets is kept, as nothing on this cable ever asks for a pause.
pub(super) fn pfcc(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: PfccReg = input(tail)?;
    port(register.local_port())?;
    let settings = &mut device.vport.settings;
    if write {
        let [send, receive] = &mut settings.pauses;
        let set = |kept: &mut Pauses, port: bool, keep: bool, mask: u8, priorities: u8| {
            if !keep {
                kept.port = port;
            }
            // Without a mask, a driver that sets the pauses of the port has those of priorities stay off: they exclude each
            // other.
            match mask {
                0 if port && !keep => kept.priorities = 0,
                mask => kept.priorities = kept.priorities & !mask | priorities & mask,
            }
        };
        set(
            send,
            register.pptx(),
            register.pptx_mask_n(),
            register.prio_mask_tx(),
            register.pfctx(),
        );
        set(
            receive,
            register.pprx(),
            register.pprx_mask_n(),
            register.prio_mask_rx(),
            register.pfcrx(),
        );
        if register.minor_stall_mask() {
            settings.watermarks[0] = register.device_stall_minor_watermark();
        }
        if register.critical_stall_mask() {
            settings.watermarks[1] = register.device_stall_critical_watermark();
        }
    }
    let ([send, receive], [minor, critical]) = (settings.pauses, settings.watermarks);
    let local_port = register.local_port();
    register = PfccReg::ZERO;
    register
        .set_local_port(local_port)
        .set_prio_mask_tx(0xff)
        .set_prio_mask_rx(0xff)
        .set_pptx(send.port)
        .set_pfctx(send.priorities)
        .set_pprx(receive.port)
        .set_pfcrx(receive.priorities)
        .set_device_stall_minor_watermark(minor)
        .set_device_stall_critical_watermark(critical);
    Ok(output(out, &register)?)
}

pub(super) fn qpts(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: QptsReg = input(tail)?;
    port(register.local_port())?;
    if write {
        let trust = register.trust_state();
        if !matches!(trust, TRUST_PCP | TRUST_DSCP) {
            return Err(Syndrome::RegisterValue.into());
        }
        device.vport.settings.trust = trust;
    }
    register.set_trust_state(device.vport.settings.trust);
    Ok(output(out, &register)?)
}

pub(super) fn qpdpm(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: QpdpmReg = input(tail)?;
    port(register.local_port())?;
    let kept = &mut device.vport.settings.dscp;
    for (entry, kept) in register.dscp_mut().chunks_exact_mut(2).zip(kept) {
        let wanted = u16::from_be_bytes([entry[0], entry[1]]);
        // All entries are taken: no document says that one without `QPDPM_ENABLE` is left alone, and Linux's driver writes
        // what it has read (`mlx5_set_dscp2prio`).
        if write {
            let priority = (wanted & QPDPM_PRIORITY) as u8;
            if usize::from(priority) >= PRIORITIES {
                return Err(Syndrome::RegisterValue.into());
            }
            *kept = priority;
        }
        entry.copy_from_slice(&u16::from(*kept).to_be_bytes());
    }
    Ok(output(out, &register)?)
}

/// Linux's driver writes this register and QETCR with the port's number 0 (`mlx5_set_port_prio_tc`).
fn port_or_none(number: u8) -> core::result::Result<(), Syndrome> {
    match number {
        0 => Ok(()),
        number => port(number),
    }
}

pub(super) fn qtct(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: QtctReg = input(tail)?;
    port_or_none(register.port_number())?;
    let class = &mut device.vport.settings.classes[usize::from(register.prio())];
    if write {
        *class = register.tclass();
    }
    register.set_tclass(*class);
    Ok(output(out, &register)?)
}

pub(super) fn qetc(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: QetcReg = input(tail)?;
    port_or_none(register.port_number())?;
    let classes = &mut device.vport.settings.bandwidth;
    let entries = register.tc_configuration_mut();
    for (bytes, class) in entries
        .chunks_exact_mut(EtsTcnConfigReg::SIZE)
        .zip(classes.iter_mut())
    {
        let Ok(entry) = EtsTcnConfigReg::mut_from_bytes(bytes) else {
            return Err(Syndrome::RegisterShort.into());
        };
        if write {
            if entry.bw_allocation() > 100 || entry.group() > 7 {
                return Err(Syndrome::RegisterValue.into());
            }
            if entry.g() {
                class.group = entry.group();
            }
            if entry.b() {
                class.bandwidth = entry.bw_allocation();
            }
            if entry.r() {
                class.limit = (entry.max_bw_units(), entry.max_bw_value());
            }
        }
        *entry = EtsTcnConfigReg::ZERO;
        entry
            .set_group(class.group)
            .set_bw_allocation(class.bandwidth)
            .set_max_bw_units(class.limit.0)
            .set_max_bw_value(class.limit.1);
    }
    Ok(output(out, &register)?)
}

/// Length of PPLM in Linux's header up to 6.12 at least, which is what these drivers send; 7.3 has 0x78 bytes.
const PPLM_OLDER: usize = 0x50;

/// Error correction: what the driver asks for at the cable's speed is in use at once. It does not correct anything.
pub(super) fn pplm(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register = PplmReg::ZERO;
    let len = tail.len().min(PplmReg::SIZE);
    if len < PPLM_OLDER {
        return Err(Syndrome::RegisterShort.into());
    }
    register.as_mut_bytes()[..len].copy_from_slice(&tail[..len]);
    port(register.local_port())?;
    let kept = &mut device.vport.settings.fec;
    if write {
        let others = register.fec_override_admin_56g()
            | register.fec_override_admin_50g()
            | register.fec_override_admin_25g()
            | register.fec_override_admin_10g_40g();
        let wanted = register.fec_override_admin_100g();
        // Drivers leave to the port what it cannot do at a speed.
        if others != 0 || !matches!(wanted, 0 | NO_FEC | RS_528) {
            return Err(Syndrome::RegisterValue.into());
        }
        *kept = wanted;
    }
    let wanted = *kept;
    register = PplmReg::ZERO;
    register
        .set_local_port(1)
        .set_fec_override_cap_100g(NO_FEC | RS_528)
        .set_fec_override_admin_100g(wanted);
    if device.vport.up() {
        let active = if wanted == 0 { RS_528 } else { wanted };
        register.set_fec_mode_active(active.into());
    }
    let answered = out.len().min(PplmReg::SIZE);
    out[..answered].copy_from_slice(&register.as_bytes()[..answered]);
    Ok(())
}

pub(super) fn mcia(device: &Device, tail: &[u8], out: &mut [u8]) -> Result {
    // How much data may follow has grown from one version of the driver to the next.
    let mut header: [u8; MCIA_HEADER] = input(tail)?;
    let mut register = MciaReg::ZERO;
    register.0[..MCIA_HEADER].copy_from_slice(&header);
    let most = MCIA_DATA[usize::from(device.caps.general.mcam_reg())];
    let size = usize::from(register.size());
    let space = out.len().saturating_sub(MCIA_HEADER);
    if size > most || size > space {
        return Err(Syndrome::RegisterValue.into());
    }
    let mut data = [0; MCIA_DATA[1]];
    let status = match &device.config.module {
        Some(module) if register.module() == 0 => {
            let (address, page) = (register.i2c_device_address(), register.page_number());
            let at = usize::from(register.device_address());
            match module.read(address, page, at, &mut data[..size]) {
                true => 0,
                false => I2C_ERROR,
            }
        }
        _ => NO_EEPROM,
    };
    header[3] = status;
    output(out, &header)?;
    if status == 0 {
        out[MCIA_HEADER..][..size].copy_from_slice(&data[..size]);
    }
    Ok(())
}

pub(super) fn mtcap(device: &Device, tail: &[u8], out: &mut [u8]) -> Result {
    let mut register: MtcapReg = input(tail)?;
    let numbers = device.config.sensors.iter().map(|sensor| sensor.number);
    let numbers = numbers.filter(|number| *number < MODULE_SENSORS);
    let map = numbers.fold(0, |map: u64, number| map | 1 << number);
    register
        .set_sensor_count(map.count_ones() as u8)
        .set_sensor_map(map);
    Ok(output(out, &register)?)
}

pub(super) fn mtmp(device: &mut Device, tail: &[u8], out: &mut [u8], write: bool) -> Result {
    let mut register: MtmpReg = input(tail)?;
    let number = register.sensor_index();
    let mut sensors = device.config.sensors.iter_mut();
    let Some(sensor) = sensors.find(|sensor| sensor.number == number) else {
        // A module without a sensor measures nothing; Linux asks for it.
        if number != MODULE_SENSORS {
            return Err(Syndrome::RegisterIndex.into());
        }
        register = MtmpReg::ZERO;
        register.set_sensor_index(number);
        return Ok(output(out, &register)?);
    };
    // Linux resets the highest temperature with a read that has the bit set (`mlx5_hwmon_reset_max_temp`).
    if register.mtr() {
        sensor.highest = sensor.temperature;
    }
    if write {
        sensor.threshold = register.temp_threshold_hi().cast_signed();
    }
    let [a, b, c, d, e, f, g, h] = sensor.name;
    let kept = register.mte();
    register = MtmpReg::ZERO;
    register
        .set_sensor_index(number)
        .set_temperature(sensor.temperature.cast_unsigned())
        .set_mte(kept)
        .set_max_temperature(sensor.highest.cast_unsigned())
        .set_temp_threshold_hi(sensor.threshold.cast_unsigned())
        .set_temp_threshold_lo(sensor.threshold.cast_unsigned())
        .set_sensor_name_hi(u32::from_be_bytes([a, b, c, d]))
        .set_sensor_name_lo(u32::from_be_bytes([e, f, g, h]));
    Ok(output(out, &register)?)
}

/// Nothing goes wrong between this card and its host.
pub(super) fn mpcnt(tail: &[u8], out: &mut [u8]) -> Result {
    let mut register: MpcntReg = input(tail)?;
    register.counter_set_mut().as_mut_bytes().fill(0);
    Ok(output(out, &register)?)
}
