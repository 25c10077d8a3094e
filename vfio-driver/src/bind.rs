//! Handing a function over from its kernel driver to vfio-pci, and back.
//!
//! A [`Rebinding`] is a plan: it says which files of sysfs it will write, in words that a shell understands, before it
//! does so, and it undoes what it did if a step fails. Nothing is loaded, and no other function is touched: who else is in
//! the IOMMU group and in the way is said by name.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::address::PciAddress;
use crate::error::{ForeignDriver, OpenError};
use crate::sysfs;

const VFIO: &str = "vfio-pci";

/// One write to a file of sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The file's path.
    pub path: PathBuf,
    /// The text that is written to it.
    pub text: String,
}

impl Step {
    fn new(path: PathBuf, text: impl Into<String>) -> Self {
        Self {
            path,
            text: text.into(),
        }
    }

    fn carry_out(&self) -> io::Result<()> {
        // Never created: the file is the kernel's, or it is not there.
        let mut file = fs::File::options().write(true).open(&self.path)?;
        io::Write::write_all(&mut file, format!("{}\n", self.text).as_bytes())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.text.is_empty() { "" } else { " " };
        write!(f, "echo {}{space}> {}", self.text, self.path.display())
    }
}

/// Why a function could not be bound to another driver.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// The function cannot be bound, because of its own state or that of its surroundings.
    Unsuitable(OpenError),
    /// vfio-pci is not there to bind to.
    NoVfioPci,
    /// A step failed; those before it were undone.
    Step {
        /// The step that failed.
        step: Step,
        /// The system's error.
        source: io::Error,
        /// `true` if the earlier steps could be undone.
        undone: bool,
    },
    /// All was written, and the function has another driver than it should have; what was written was undone.
    Driver {
        /// The function's address.
        address: PciAddress,
        /// The driver that it should have.
        wanted: &'static str,
        /// The driver that it has.
        found: Option<String>,
    },
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsuitable(error) => error.fmt(f),
            Self::NoVfioPci => f.write_str("vfio-pci is not loaded: modprobe vfio-pci"),
            Self::Step {
                step,
                source,
                undone,
            } => {
                write!(f, "failed to {step}: {source}")?;
                if source.kind() == io::ErrorKind::PermissionDenied {
                    f.write_str(" (only root may bind drivers)")?;
                }
                f.write_str(if *undone {
                    "; the steps before were undone"
                } else {
                    "; the steps before could not be undone"
                })
            }
            Self::Driver {
                address,
                wanted,
                found,
            } => {
                let found = found.as_deref().unwrap_or("no driver");
                write!(
                    f,
                    "{address} should be bound to {wanted} now and is bound to {found}; the kernel's log says why"
                )
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unsuitable(error) => Some(error),
            Self::Step { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<OpenError> for BindError {
    fn from(error: OpenError) -> Self {
        Self::Unsuitable(error)
    }
}

/// A plan that binds a function to another driver, until it is [carried out](Self::carry_out).
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = bareverbs_vfio::Rebinding::to_vfio("0000:3b:00.0".parse()?)?;
/// print!("{plan}");
/// plan.carry_out()?;
/// // ... and when the function is no longer needed:
/// plan.undo()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebinding {
    address: PciAddress,
    to_vfio: bool,
    device: PathBuf,
    driver: Option<String>,
    interfaces: Vec<String>,
    steps: Vec<Step>,
    /// The steps that undo each step: as many lists as there are steps, in their order.
    undo: Vec<Vec<Step>>,
}

impl Rebinding {
    /// From its present driver to vfio-pci. Nothing to do if it is there already.
    ///
    /// The IOMMU, the function and the other functions of its group are looked at first: with drivers of the kernel on
    /// those, binding this one would not make the group usable.
    pub fn to_vfio(address: PciAddress) -> Result<Self, BindError> {
        Self::to_vfio_in(Path::new("/sys"), address)
    }

    /// Back to the driver that the kernel finds for it, without the override for vfio-pci. Nothing to do if it is not
    /// bound to vfio-pci and not meant to be.
    ///
    /// A process that uses the function is asked to close it ([`VfioDevice::removal`](crate::VfioDevice::removal)); the
    /// kernel waits until it does.
    pub fn to_kernel(address: PciAddress) -> Result<Self, BindError> {
        Self::to_kernel_in(Path::new("/sys"), address)
    }

    fn to_vfio_in(sysfs: &Path, address: PciAddress) -> Result<Self, BindError> {
        let function = sysfs::function(sysfs, address)?;
        let driver = function.driver()?;
        let mut plan = Self::new(address, true, &function, driver.clone());
        let others: Vec<ForeignDriver> = function.foreign_drivers_beside(address)?;
        if !others.is_empty() {
            return Err(BindError::Unsuitable(OpenError::GroupNotViable {
                group: function.group,
                foreign_drivers: others,
            }));
        }
        if driver.as_deref().is_some_and(sysfs::is_vfio) {
            return Ok(plan);
        }
        let bus = sysfs.join("bus/pci");
        if !bus.join("drivers").join(VFIO).is_dir() {
            return Err(BindError::NoVfioPci);
        }
        plan.rebind(&bus, VFIO, driver.as_deref())?;
        Ok(plan)
    }

    fn to_kernel_in(sysfs: &Path, address: PciAddress) -> Result<Self, BindError> {
        let function = sysfs::function(sysfs, address)?;
        let driver = function.driver()?;
        let mut plan = Self::new(address, false, &function, driver.clone());
        let ours = driver.as_deref().is_some_and(sysfs::is_vfio);
        if ours || !plan.override_now()?.is_empty() {
            plan.rebind(&sysfs.join("bus/pci"), "", driver.as_deref())?;
        }
        Ok(plan)
    }

    fn new(
        address: PciAddress,
        to_vfio: bool,
        function: &sysfs::Function,
        driver: Option<String>,
    ) -> Self {
        Self {
            address,
            to_vfio,
            interfaces: sysfs::names(&function.path.join("net")),
            device: function.path.clone(),
            driver,
            steps: Vec::new(),
            undo: Vec::new(),
        }
    }

    /// The driver that alone may have the function; nothing if that is not fixed.
    fn override_now(&self) -> Result<String, OpenError> {
        let path = self.device.join("driver_override");
        let text = fs::read_to_string(&path).map_err(|source| OpenError::Sysfs { path, source })?;
        let text = text.trim();
        Ok(if text == "(null)" { "" } else { text }.to_string())
    }

    /// The steps from one driver to another, and back.
    fn rebind(&mut self, bus: &Path, to: &str, from: Option<&str>) -> Result<(), OpenError> {
        let address = self.address.to_string();
        let before = self.override_now()?;
        let fix = self.device.join("driver_override");
        let probe = Step::new(bus.join("drivers_probe"), &address);
        let leave = |driver: &str| {
            Step::new(
                bus.join("drivers").join(driver).join("unbind"),
                address.as_str(),
            )
        };
        self.step(
            Step::new(fix.clone(), to),
            vec![Step::new(fix, before.as_str())],
        );
        if let Some(driver) = from {
            self.step(leave(driver), vec![probe.clone()]);
        }
        // Where the function is bound by then is looked up when it is undone.
        self.step(probe, Vec::new());
        Ok(())
    }

    fn step(&mut self, step: Step, undo: Vec<Step>) {
        self.steps.push(step);
        self.undo.push(undo);
    }

    /// The files that will be written, in order. Empty if there is nothing to do.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The network interfaces that go away with the driver.
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// The files that a user opens once the function is bound to vfio-pci: those of one interface, and of the other; each has to
    /// be readable and writable. Empty before that.
    pub fn device_files(&self) -> Vec<[PathBuf; 2]> {
        if !self
            .driver_now()
            .is_ok_and(|driver| driver.as_deref().is_some_and(sysfs::is_vfio))
        {
            return Vec::new();
        }
        let cdev = sysfs::cdev(&self.device).map(|file| [file, "/dev/iommu".into()]);
        let group = sysfs::link_name(&self.device.join("iommu_group"))
            .ok()
            .flatten();
        let group =
            group.map(|group| [Path::new("/dev/vfio").join(group), "/dev/vfio/vfio".into()]);
        cdev.into_iter().chain(group).collect()
    }

    /// Does it. If a step fails, those before it are undone.
    pub fn carry_out(&self) -> Result<(), BindError> {
        for (index, step) in self.steps.iter().enumerate() {
            if let Err(source) = step.carry_out() {
                return Err(BindError::Step {
                    step: step.clone(),
                    source,
                    undone: self.undo_first(index).is_ok(),
                });
            }
        }
        let found = self.driver_now()?;
        if self.to_vfio && !found.as_deref().is_some_and(sysfs::is_vfio) {
            let _ = self.undo();
            return Err(BindError::Driver {
                address: self.address,
                wanted: VFIO,
                found,
            });
        }
        Ok(())
    }

    /// Makes it as it was before.
    pub fn undo(&self) -> Result<(), BindError> {
        self.undo_first(self.steps.len())
    }

    /// Undoes so many steps from the first on: what fixed the driver first, as that decides who comes.
    fn undo_first(&self, count: usize) -> Result<(), BindError> {
        if count == 0 {
            return Ok(());
        }
        let carry_out = |step: &Step| {
            step.carry_out().map_err(|source| BindError::Step {
                step: step.clone(),
                source,
                undone: false,
            })
        };
        let (fix, rest) = self.undo.split_at(1);
        for step in fix.iter().flatten() {
            carry_out(step)?;
        }
        if self.driver_now()? != self.driver {
            let unbind = self.device.join("driver/unbind");
            if unbind.exists() {
                carry_out(&Step::new(unbind, self.address.to_string()))?;
            }
            for step in rest.iter().flatten() {
                carry_out(step)?;
            }
        }
        Ok(())
    }

    fn driver_now(&self) -> Result<Option<String>, OpenError> {
        sysfs::link_name(&self.device.join("driver"))
    }
}

impl fmt::Display for Rebinding {
    /// Writes the plan, line by line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver.as_deref().unwrap_or("no driver");
        if self.steps.is_empty() {
            return writeln!(f, "{} stays with {driver}: nothing to do", self.address);
        }
        let to = if self.to_vfio {
            VFIO
        } else {
            "the driver that the kernel finds for it"
        };
        writeln!(f, "{} goes from {driver} to {to}:", self.address)?;
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        if !self.interfaces.is_empty() {
            writeln!(
                f,
                "  network interfaces that go away with it: {}",
                self.interfaces.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::tests::Sysfs;

    fn lines(plan: &Rebinding, sysfs: &Sysfs) -> Vec<String> {
        let root = format!("{}/", sysfs.root().display());
        plan.steps()
            .iter()
            .map(|step| step.to_string().replace(&root, ""))
            .collect()
    }

    fn address() -> PciAddress {
        "3b:00.0".parse().unwrap()
    }

    /// A function of mlx5_core's in a separate group, with the files that binding writes.
    fn card(sysfs: &Sysfs) -> PathBuf {
        let nic = sysfs.nic("0000:3b:00.0");
        sysfs.group("42", &[&nic]);
        sysfs.bind(&nic, "mlx5_core");
        fs::write(nic.join("driver_override"), "(null)\n").unwrap();
        let pci = sysfs.root().join("bus/pci");
        fs::write(pci.join("drivers_probe"), "").unwrap();
        fs::write(pci.join("drivers/mlx5_core/unbind"), "").unwrap();
        fs::create_dir_all(pci.join("drivers/vfio-pci")).unwrap();
        nic
    }

    #[test]
    fn the_plan_says_what_it_writes_and_what_goes_away() {
        let sysfs = Sysfs::new();
        let nic = card(&sysfs);
        fs::create_dir_all(nic.join("net/ens1f0np0")).unwrap();
        let plan = Rebinding::to_vfio_in(sysfs.root(), address()).unwrap();
        assert_eq!(
            lines(&plan, &sysfs),
            [
                "echo vfio-pci > bus/pci/devices/0000:3b:00.0/driver_override",
                "echo 0000:3b:00.0 > bus/pci/drivers/mlx5_core/unbind",
                "echo 0000:3b:00.0 > bus/pci/drivers_probe",
            ]
        );
        let text = plan.to_string();
        assert!(text.contains("from mlx5_core to vfio-pci"), "{text}");
        assert!(text.contains("ens1f0np0"), "{text}");
    }

    #[test]
    fn a_kernel_that_does_not_follow_is_noticed_and_all_is_undone() {
        let sysfs = Sysfs::new();
        let nic = card(&sysfs);
        let plan = Rebinding::to_vfio_in(sysfs.root(), address()).unwrap();
        // Files only record what is written to them: the driver stays.
        let error = plan.carry_out().unwrap_err();
        assert!(
            matches!(&error, BindError::Driver { wanted: VFIO, found: Some(found), .. } if found == "mlx5_core"),
            "{error:?}"
        );
        let fixed = fs::read_to_string(nic.join("driver_override")).unwrap();
        assert!(fixed.starts_with('\n'), "{fixed:?}");
        let probed = fs::read_to_string(sysfs.root().join("bus/pci/drivers_probe")).unwrap();
        assert_eq!(probed, "0000:3b:00.0\n");
    }

    #[test]
    fn a_step_that_fails_names_itself_and_what_was_before_is_undone() {
        let sysfs = Sysfs::new();
        let nic = card(&sysfs);
        let plan = Rebinding::to_vfio_in(sysfs.root(), address()).unwrap();
        fs::remove_file(sysfs.root().join("bus/pci/drivers/mlx5_core/unbind")).unwrap();
        let error = plan.carry_out().unwrap_err();
        let BindError::Step {
            step, undone: true, ..
        } = &error
        else {
            panic!("{error:?}");
        };
        assert!(step.path.ends_with("mlx5_core/unbind"), "{error}");
        let fixed = fs::read_to_string(nic.join("driver_override")).unwrap();
        assert!(fixed.starts_with('\n'), "{fixed:?}");
    }

    #[test]
    fn a_function_with_vfio_stays_and_goes_back() {
        let sysfs = Sysfs::new();
        let nic = card(&sysfs);
        fs::remove_file(nic.join("driver")).unwrap();
        sysfs.bind(&nic, "vfio-pci");
        fs::write(nic.join("driver_override"), "vfio-pci\n").unwrap();
        let plan = Rebinding::to_vfio_in(sysfs.root(), address()).unwrap();
        assert_eq!(plan.steps(), []);
        plan.carry_out().unwrap();
        assert!(plan.to_string().contains("nothing to do"));
        let plan = Rebinding::to_kernel_in(sysfs.root(), address()).unwrap();
        assert_eq!(
            lines(&plan, &sysfs),
            [
                "echo > bus/pci/devices/0000:3b:00.0/driver_override",
                "echo 0000:3b:00.0 > bus/pci/drivers/vfio-pci/unbind",
                "echo 0000:3b:00.0 > bus/pci/drivers_probe",
            ]
        );
    }

    #[test]
    fn a_function_of_the_kernel_has_no_driver_to_return_to() {
        let sysfs = Sysfs::new();
        card(&sysfs);
        let plan = Rebinding::to_kernel_in(sysfs.root(), address()).unwrap();
        assert_eq!(plan.steps(), []);
    }

    #[test]
    fn the_files_that_a_user_needs_are_named() {
        let sysfs = Sysfs::new();
        let nic = sysfs.nic("0000:3b:00.0");
        sysfs.group("42", &[&nic]);
        fs::write(nic.join("driver_override"), "vfio-pci\n").unwrap();
        let group = ["/dev/vfio/42", "/dev/vfio/vfio"].map(PathBuf::from);
        let files = || {
            let plan = Rebinding::to_kernel_in(sysfs.root(), address()).unwrap();
            plan.device_files()
        };
        assert_eq!(files(), [[""; 2]; 0].map(|pair| pair.map(PathBuf::from)));
        sysfs.bind(&nic, "vfio-pci");
        assert_eq!(files(), std::slice::from_ref(&group));
        fs::create_dir_all(nic.join("vfio-dev/vfio3")).unwrap();
        fs::write(nic.join("vfio-dev/vfio3/dev"), "511:0\n").unwrap();
        let cdev = ["/dev/vfio/devices/vfio3", "/dev/iommu"].map(PathBuf::from);
        assert_eq!(files(), [cdev, group]);
    }

    #[test]
    fn others_in_the_group_and_a_missing_module_are_named() {
        let sysfs = Sysfs::new();
        let nic = sysfs.nic("0000:3b:00.0");
        let sibling = sysfs.nic("0000:3b:00.1");
        sysfs.bind(&nic, "mlx5_core");
        sysfs.bind(&sibling, "mlx5_core");
        sysfs.group("9", &[&nic, &sibling]);
        let error = Rebinding::to_vfio_in(sysfs.root(), address()).unwrap_err();
        let BindError::Unsuitable(OpenError::GroupNotViable {
            foreign_drivers, ..
        }) = &error
        else {
            panic!("{error:?}");
        };
        // The function itself is not among them: it is the one that will move.
        assert_eq!(foreign_drivers.len(), 1);
        assert_eq!(foreign_drivers[0].device, "0000:3b:00.1");

        let sysfs = Sysfs::new();
        card(&sysfs);
        fs::remove_dir(sysfs.root().join("bus/pci/drivers/vfio-pci")).unwrap();
        let error = Rebinding::to_vfio_in(sysfs.root(), address()).unwrap_err();
        assert!(matches!(error, BindError::NoVfioPci), "{error:?}");
    }
}
