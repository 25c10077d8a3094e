//! Translation of paths: those of the kernel's RDMA drivers are opened in another folder.

/// The environment variable with the folder that has the files, as they would be below `/`.
pub const ROOT: &str = "BAREVERBS_PATHS";

/// The folders of the kernel's RDMA drivers.
const FOLDERS: [&[u8]; 3] = [
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_verbs",
    b"/dev/infiniband",
];

/// The folder of PCI functions, which not all roots have: otherwise it is the system's.
pub(crate) const FUNCTIONS: &str = "/sys/bus/pci/devices";

/// Returns `true` if a path is one of the kernel's RDMA drivers, or of PCI functions if the root has them.
fn is_ours(path: &[u8], functions: bool) -> bool {
    let functions = functions.then_some(FUNCTIONS.as_bytes());
    FOLDERS.into_iter().chain(functions).any(|folder| {
        let rest = path.strip_prefix(folder);
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    })
}

/// Writes where a path is looked for, as C's text, into `room`. `None`: it is the system's, or there is not enough room.
///
/// `functions`: the root has PCI functions in place of the system's.
pub fn translate<'a>(
    root: &[u8],
    functions: bool,
    path: &[u8],
    room: &'a mut [u8],
) -> Option<&'a [u8]> {
    if root.is_empty() || !is_ours(path, functions) {
        return None;
    }
    let (before, rest) = room.split_at_mut_checked(root.len())?;
    let (behind, rest) = rest.split_at_mut_checked(path.len())?;
    before.copy_from_slice(root);
    behind.copy_from_slice(path);
    *rest.first_mut()? = 0;
    room.get(..=root.len() + path.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_rdma_drivers_are_translated() {
        let mut room = [0; 64];
        for path in [
            "/sys/class/infiniband",
            "/sys/class/infiniband/",
            "/sys/class/infiniband/mlx5_0/ports/1",
            "/sys/class/infiniband_verbs/uverbs0",
            "/dev/infiniband/uverbs0",
        ] {
            let expected = format!("/root{path}\0");
            let found = translate(b"/root", false, path.as_bytes(), &mut room);
            assert_eq!(found, Some(expected.as_bytes()), "{path}");
            assert_eq!(translate(b"", true, path.as_bytes(), &mut room), None);
        }
        for path in [
            "",
            "/",
            "/sys/class/infiniband_madx",
            "/sys/class/net/eth0",
            "/dev/infinibandx",
            "sys/class/infiniband",
            "/root/sys/class/infiniband",
        ] {
            let found = translate(b"/root", false, path.as_bytes(), &mut room);
            assert_eq!(found, None, "{path}");
        }
    }

    #[test]
    fn functions_are_the_systems_if_the_root_has_none() {
        let mut room = [0; 64];
        let path = b"/sys/bus/pci/devices/ffff:01:00.0";
        assert_eq!(translate(b"/root", false, path, &mut room), None);
        let found = translate(b"/root", true, path, &mut room);
        assert_eq!(
            found,
            Some([b"/root", &path[..], b"\0"].concat().as_slice())
        );
        assert_eq!(translate(b"/root", true, b"/sys/bus/pci", &mut room), None);
    }

    #[test]
    fn what_is_too_long_is_the_systems() {
        let path = b"/dev/infiniband/x";
        let enough = 4 + path.len() + 1;
        for len in 0..enough {
            assert_eq!(translate(b"root", false, path, &mut vec![0; len]), None);
        }
        assert!(translate(b"root", false, path, &mut vec![0; enough]).is_some());
    }
}
