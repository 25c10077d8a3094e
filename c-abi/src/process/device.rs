//! The list of devices, and what is known of a device before it is opened.

// UNSAFETY: hands pointers to objects of C out, and takes them back.
#![expect(unsafe_code)]

use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::fs;
use std::ptr;
use std::sync::{Mutex, Once, OnceLock};

use bareverbs_node::cm::engine::LastMessage;
use bareverbs_node::last_messages::End;
use bareverbs_node::vfio::{OpenError, Options, VfioDevice};
use bareverbs_node::{Address, DeviceName, DevicePlatform};

use crate::abi::numbers::{IBV_FORK_UNNEEDED, IBV_NODE_CA, IBV_TRANSPORT_IB};
use crate::abi::objects::ibv_device;
use crate::process::failure::{Errno, Result, as_nothing, as_number, as_pointer, guarded, lock};
use crate::process::hca::Hca;
use crate::process::{last_messages, memory, owner, progress, settings};

/// The addresses that a device is made with, its threads and its model included.
const NEEDED: usize = 64 << 20;

/// A device of the list. There is one for each, for ever.
#[repr(C)]
pub(crate) struct DeviceObject {
    c: ibv_device,
    name: DeviceName,
    index: usize,
    /// The index of the model, the number of models, and the number of the first one.
    model: (usize, usize),
    first_unit: u8,
    addresses: Vec<Address>,
    hca: Mutex<Option<&'static Hca>>,
}

// SAFETY: the structure of C has no pointers, and is not changed.
unsafe impl Send for DeviceObject {}
// SAFETY: the same.
unsafe impl Sync for DeviceObject {}

impl DeviceObject {
    fn new(name: DeviceName, index: usize, model: (usize, usize), first_unit: u8) -> Result<Self> {
        let unit = usize::from(first_unit) + index;
        let unit = u8::try_from(unit).map_err(|_| Errno::EINVAL)?;
        let text = |text: String, to: &mut [c_char]| {
            for (to, from) in to.iter_mut().zip(text.bytes()) {
                *to = from as c_char;
            }
        };
        let mut c = ibv_device {
            _ops: crate::abi::objects::_ibv_device_ops {
                _dummy1: ptr::null_mut(),
                _dummy2: ptr::null_mut(),
            },
            node_type: IBV_NODE_CA,
            transport_type: IBV_TRANSPORT_IB,
            name: [0; 64],
            dev_name: [0; 64],
            dev_path: [0; 256],
            ibdev_path: [0; 256],
        };
        text(format!("mlx5_{index}"), &mut c.name);
        text(format!("uverbs{index}"), &mut c.dev_name);
        text(
            format!("/sys/class/infiniband_verbs/uverbs{index}"),
            &mut c.dev_path,
        );
        text(
            format!("/sys/class/infiniband/mlx5_{index}"),
            &mut c.ibdev_path,
        );
        Ok(Self {
            c,
            name,
            index,
            model,
            first_unit,
            addresses: settings::addresses(index, unit)?,
            hca: Mutex::new(None),
        })
    }

    /// The device of C.
    pub(crate) fn as_ptr(&'static self) -> *mut ibv_device {
        (&raw const self.c).cast_mut()
    }

    /// The device, if it is up.
    pub(crate) fn hca_if_up(&self) -> Option<&'static Hca> {
        *lock(&self.hca)
    }

    /// The addresses that its port has, or will have.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The device, which is brought up if it is not.
    pub(crate) fn hca(&'static self) -> Result<&'static Hca> {
        let mut hca = lock(&self.hca);
        if let Some(hca) = *hca {
            return Ok(hca);
        }
        let _blocked = owner::BlockedSignals::new();
        let is_model = self.name == DeviceName::Model;
        memory::room_for(NEEDED).inspect_err(|_| {
            log::error!("{}: no memory for it, which is {NEEDED} bytes", self.name);
        })?;
        let up = Hca::bring_up(self.platform()?, &self.addresses, is_model, false)?;
        if let Some(messages) = last_messages::of_device(self.index, || self.last_messages()) {
            up.manager_quietly()?.set_last_messages(messages);
        }
        progress::start(up)?;
        Ok(*hca.insert(up))
    }

    /// Makes the memory for the last messages of all devices that have a network with others.
    fn last_messages(&self) -> Result<Vec<Option<last_messages::Messages>>> {
        let devices = devices()?;
        let mut ends: Vec<End> = devices.iter().filter_map(Self::end).collect();
        ends.dedup();
        match ends.is_empty() {
            true => Ok(Vec::new()),
            false => {
                owner::wait_for_all(&ends);
                let names: Vec<String> = ends.iter().map(End::name).collect();
                last_messages::begin(devices.len(), self.first_unit, &names)
            }
        }
    }

    /// Its end of a network with others, if it has one.
    fn end(&self) -> Option<End> {
        match self.name {
            DeviceName::Vfio(address) => Some(End::Function(address)),
            #[cfg(feature = "model")]
            DeviceName::Model => crate::process::model::end(self.first_unit),
            #[cfg(not(feature = "model"))]
            DeviceName::Model => None,
        }
    }

    /// Sends the last messages of a process that is gone, from the device, which nothing else in this process uses.
    pub(crate) fn hang_up(&self, messages: &[LastMessage]) -> Result<()> {
        let is_model = self.name == DeviceName::Model;
        let up = Hca::bring_up(self.platform()?, &self.addresses, is_model, true)?;
        up.manager_quietly()?.send_last_messages(messages);
        up.end();
        Ok(())
    }

    fn platform(&self) -> Result<DevicePlatform> {
        match self.name {
            DeviceName::Vfio(address) => {
                let options = Options::with_vectors(1);
                owner::wait_for_end(&End::Function(address));
                let is_in_use = |error: &OpenError| matches!(error, OpenError::InUse { .. });
                let open = || VfioDevice::open_with(address, options);
                match owner::when_free(is_in_use, open) {
                    Ok(device) => Ok(device.into()),
                    Err(error) => {
                        log::error!("{}: {error}", self.name);
                        Err(Errno::EIO)
                    }
                }
            }
            #[cfg(feature = "model")]
            DeviceName::Model => {
                let (index, count) = self.model;
                crate::process::model::platform(index, count, self.first_unit)
            }
            #[cfg(not(feature = "model"))]
            DeviceName::Model => Err(Errno::ENODEV),
        }
    }
}

/// The devices of this process.
pub(crate) fn devices() -> Result<&'static [DeviceObject]> {
    static DEVICES: OnceLock<Result<Vec<DeviceObject>>> = OnceLock::new();
    static LOG: Once = Once::new();
    LOG.call_once(|| {
        let level = env_logger::Env::new().filter_or(settings::LOG, "error");
        // A program in Rust may have a logger already.
        let _ = env_logger::Builder::from_env(level).try_init();
    });
    let devices = DEVICES.get_or_init(|| {
        if let Some(hint) = hint(std::env::vars_os().map(|(name, _)| name)) {
            eprintln!("{hint}");
        }
        let names = settings::devices()?;
        let is_model = |name: &&DeviceName| **name == DeviceName::Model;
        let models = names.iter().filter(is_model).count();
        #[cfg(feature = "model")]
        let first_unit = crate::process::model::first_unit(models)?;
        #[cfg(not(feature = "model"))]
        let first_unit = settings::unit()?.unwrap_or(1);
        let device = |(index, name): (usize, &DeviceName)| {
            let model = names[..index].iter().filter(is_model).count();
            DeviceObject::new(*name, index, (model, models), first_unit)
        };
        names.iter().enumerate().map(device).collect()
    });
    match devices {
        Ok(devices) => Ok(devices),
        Err(errno) => Err(*errno),
    }
}

/// Returns the hint for a program whose environment has none of the library's variables. Any of them silences it.
fn hint(mut names: impl Iterator<Item = OsString>) -> Option<String> {
    let is_ours = |name: OsString| name.as_encoded_bytes().starts_with(b"BAREVERBS_");
    let devices = match cfg!(feature = "model") {
        true => "a device model without a link to others",
        false => "no device",
    };
    (!names.any(is_ours)).then(|| {
        format!(
            "libibverbs (bareverbs): no BAREVERBS_ variable is set, so there is {devices}. Start the program with \
             bareverbs-run, or set {device}=vfio:ADDRESS, or {device}=model with {link}; {device}=model alone \
             silences this.",
            device = settings::DEVICE,
            link = settings::LINK,
        )
    })
}

/// The device behind a pointer of C.
///
/// # Safety
/// The pointer is from the list of devices.
pub(crate) unsafe fn device<'a>(device: *mut ibv_device) -> Result<&'a DeviceObject> {
    // SAFETY: the caller's promise: it is the first field of a `DeviceObject`, which lives for ever.
    unsafe { device.cast::<DeviceObject>().as_ref() }.ok_or(Errno::EINVAL)
}

/// Lists the devices: `ibv_get_device_list`. To be freed with `ibv_free_device_list`.
///
/// # Safety
/// `num_devices` is NULL or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    as_pointer(|| {
        let devices = devices()?;
        let mut list: Vec<*mut ibv_device> = devices.iter().map(DeviceObject::as_ptr).collect();
        // SAFETY: the caller promises that `num_devices` is NULL or points to a number.
        if let Some(number) = unsafe { num_devices.as_mut() } {
            *number = list.len() as c_int;
        }
        list.push(ptr::null_mut());
        Ok(Box::leak(list.into_boxed_slice()).as_mut_ptr())
    })
}

/// Frees a list of devices: `ibv_free_device_list`. The devices stay.
///
/// # Safety
/// `list` is from `ibv_get_device_list`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    as_nothing(|| {
        if !list.is_null() {
            let entries = devices()?.len() + 1;
            // SAFETY: the caller's promise; the list has an entry for each device, and NULL.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, entries)) });
        }
        Ok(())
    });
}

/// The device's name: `ibv_get_device_name`.
///
/// # Safety
/// `device` is NULL or from the list of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller promises that `device` is NULL or from the list of devices.
    unsafe { device.as_ref() }.map_or(ptr::null(), |device| device.name.as_ptr())
}

/// The device's index in the kernel's tables: `ibv_get_device_index`. There is none, which is -1.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_index(_: *mut ibv_device) -> c_int {
    -1
}

/// The GUID of the device's node in network order, 0 if the device does not come up: `ibv_get_device_guid`.
///
/// # Safety
/// `device` is from the list of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    let guid = guarded(|| {
        // SAFETY: the caller promises that `device` is from the list of devices.
        let device = unsafe { self::device(device) }?;
        Ok(device.hca()?.device.query_port()?.node_guid)
    });
    guid.unwrap_or_else(|errno| {
        errno.set();
        0
    })
    .to_be()
}

/// The transport as text: `ibv_node_type_str`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    let text = match node_type {
        1 => c"InfiniBand channel adapter",
        2 => c"InfiniBand switch",
        3 => c"InfiniBand router",
        4 => c"iWARP NIC",
        5 => c"usNIC",
        6 => c"usNIC UDP",
        7 => c"unspecified",
        _ => c"unknown",
    };
    text.as_ptr()
}

/// Where sysfs is: `ibv_get_sysfs_path`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads a file of sysfs into a buffer, without the newline at its end: `ibv_read_sysfs_file`. What the kernel would say of a
/// device of this library is answered by the library. Returns the length, or -1 if there is no room for the zero at the end.
///
/// # Safety
/// `dir` and `file` are text, and `size` bytes at `buf` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    as_number(|| {
        // SAFETY: the caller promises that `dir` and `file` are text, and `size` bytes at `buf` can be written.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let own = devices()?.iter().find(|device| {
            // SAFETY: the text ends within its 256 bytes, of which the last ones are zero.
            let own = unsafe { CStr::from_ptr(device.c.ibdev_path.as_ptr()) };
            own == dir
        });
        let text = match own {
            Some(device) => attribute(device, &file.to_string_lossy())?.into_bytes(),
            None => {
                let path = format!("{}/{}", dir.to_string_lossy(), file.to_string_lossy());
                fs::read(path)?
            }
        };
        let mut length = text.len().min(size);
        // SAFETY: the caller's promise; the length is `size` at most.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), buf.cast::<u8>(), length) };
        // A newline at the end makes room for the zero, and nothing is written where nothing was read.
        match text[..length].last() {
            None => return Ok(0),
            Some(b'\n') => length -= 1,
            Some(_) if length == size => return Err(Errno(libc::EOVERFLOW)),
            Some(_) => {}
        }
        // SAFETY: the same promise; the length is below `size`.
        unsafe { *buf.add(length) = 0 };
        Ok(length as c_int)
    })
}

/// The text of a device's file in sysfs, as the kernel would write it.
fn attribute(device: &'static DeviceObject, file: &str) -> Result<String> {
    let hca = device.hca()?;
    Ok(match file {
        "board_id" => {
            let adapter = hca.device.query_adapter()?;
            adapter.board_id().to_owned()
        }
        "fw_ver" => hca.device.capabilities().firmware.to_string(),
        "hca_type" => {
            use bareverbs_node::verbs::Platform;
            let id = hca.device.platform().device_id();
            id.map_or_else(String::new, |id| format!("MT{id}"))
        }
        "node_type" => "1: CA".to_owned(),
        _ => return Err(Errno(libc::ENOENT)),
    })
}

/// Prepares for fork: `ibv_fork_init`. Nothing is to be done: models read the parent's memory itself, and for what VFIO has
/// pinned Linux gives the child a copy at once (since 5.12). A child cannot use the devices.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Reports that fork needs no preparation: `ibv_is_fork_initialized`, as with kernels that copy pinned pages.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_is_fork_initialized() -> c_int {
    IBV_FORK_UNNEEDED
}

/// Keeps memory from children: `ibv_dontfork_range`. Nothing is to be done, as for `ibv_fork_init`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dontfork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

/// The opposite: `ibv_dofork_range`.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dofork_range(_: *mut c_void, _: usize) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_without_any_of_the_variables_gets_a_hint() {
        let hint = |names: &[&str]| hint(names.iter().map(OsString::from));
        let said = hint(&["PATH", "BAREVERBSX"]).expect("nothing is set");
        assert!(said.contains("bareverbs-run") && said.contains("BAREVERBS_DEVICE=model alone"));
        assert_eq!(hint(&["PATH", "BAREVERBS_PATHS"]), None);
        assert_eq!(hint(&["BAREVERBS_DEVICE"]), None);
    }
}
