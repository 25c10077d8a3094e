//! The attributes of a call: what goes in and where the answer goes.

use std::mem::offset_of;
use std::ptr::NonNull;

use bareverbs_node::verbs::{CommandError, MrError};
use libc::{c_int, c_void};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::abi::{
    ADVISE_MR, ASYNC_EVENT_ALLOC, Attr, CONTEXT_OUT, DV_QUERY_PORT, DV_QUERY_PORT_NUM,
    DV_QUERY_PORT_OUT, Header, INVOKE_WRITE, MANDATORY, OBJECT_ASYNC_EVENT, OBJECT_DEVICE,
    OBJECT_MR, QUERY_CONTEXT, QUERY_GID_ENTRY, QUERY_GID_TABLE, UHW_IN, UHW_OUT, VALID_OUTPUT,
    devx, dm, matcher,
};
use crate::program_memory;

/// An error number of the kernel's ABI.
pub(crate) type Result<T, E = c_int> = std::result::Result<T, E>;

/// An error number for what the firmware answers.
pub(crate) fn refused(error: CommandError) -> i32 {
    log::warn!("{error}");
    error.errno().abs()
}

/// An error number for a region or window that was not made.
pub(crate) fn unregistered(error: MrError) -> i32 {
    log::warn!("{error}");
    match error {
        MrError::Memory(_) | MrError::DmExhausted => libc::ENOMEM,
        MrError::Command(error) => error.errno().abs(),
        MrError::Unsupported { .. } => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    }
}

/// The attributes that a method knows. Others are not for one that is not here.
fn known(object: u16, method: u16) -> Option<&'static [u16]> {
    use devx::{ASYNC_QUERY, COMMAND_CHANNEL, EVENT_CHANNEL, SUBSCRIBE};
    use devx::{CREATE, DESTROY, DEVX, MODIFY, OBJ, OTHER, QUERY, QUERY_EQN, QUERY_UAR, UAR, UMEM};
    const OWN: [u16; 10] = [
        0x1000, 0x1001, 0x1002, 0x1003, 0x1004, 0x1005, 0x1006, 0x1007, 0x1008, 0x1009,
    ];
    let own = |count: usize| OWN.get(..count);
    match (object, method) {
        (OBJECT_DEVICE, INVOKE_WRITE) => Some(&[0, 1, 2, UHW_IN, UHW_OUT]),
        (OBJECT_DEVICE, QUERY_CONTEXT) => Some(&[0, 1, CONTEXT_OUT]),
        (OBJECT_ASYNC_EVENT, ASYNC_EVENT_ALLOC) => Some(&[0]),
        (OBJECT_DEVICE, QUERY_GID_TABLE | QUERY_GID_ENTRY) => Some(&[0, 1, 2, 3]),
        (OBJECT_DEVICE, DV_QUERY_PORT) => Some(&[DV_QUERY_PORT_NUM, DV_QUERY_PORT_OUT]),
        (matcher::OBJECT, matcher::CREATE) => own(6),
        (matcher::OBJECT | matcher::RULE, matcher::DESTROY) => own(1),
        (matcher::RULE, matcher::CREATE) => own(10),
        (dm::OBJECT, dm::ALLOC) => Some(&[0, 1, 2, 0x1000, 0x1001, 0x1002]),
        (dm::OBJECT, dm::FREE) => Some(&[0]),
        (OBJECT_MR, dm::REG) => Some(&[0, 1, 2, 3, 4, 5, 6, 7]),
        (OBJECT_MR, ADVISE_MR) => Some(&[0, 1, 2, 3]),
        (DEVX, OTHER | QUERY_UAR | QUERY_EQN) => own(2),
        (DEVX, SUBSCRIBE) | (OBJ, ASYNC_QUERY) => own(5),
        (COMMAND_CHANNEL, CREATE) => own(1),
        (EVENT_CHANNEL, CREATE) => own(2),
        (OBJ, CREATE | MODIFY | QUERY) => own(3),
        (UMEM, CREATE) => own(6),
        (UAR, CREATE) => own(5),
        (OBJ | UMEM | UAR, DESTROY) => own(1),
        _ => None,
    }
}

/// A call and its attributes: copies of what is in the program's memory.
pub(crate) struct Args {
    pub(crate) header: Header,
    attrs: Vec<Attr>,
    /// The address of the first attribute.
    start: u64,
    /// The place for an answer is not there.
    pub(crate) lost: bool,
}

impl Args {
    /// The call behind the third argument of `ioctl(RDMA_VERBS_IOCTL)`.
    pub(crate) fn new(call: *mut c_void) -> Result<Self> {
        let mut header = Header::new_zeroed();
        program_memory::read(call as u64, header.as_mut_bytes())?;
        let expected = size_of::<Header>() + usize::from(header.num_attrs) * size_of::<Attr>();
        if usize::from(header.length) != expected {
            return Err(libc::EINVAL);
        }
        let mut attrs = vec![Attr::new_zeroed(); header.num_attrs.into()];
        let start = (call as u64).wrapping_add(size_of::<Header>() as u64);
        program_memory::read(start, attrs.as_mut_bytes())?;
        Ok(Self {
            header,
            attrs,
            start,
            lost: false,
        })
    }

    /// Refuses an attribute that the method does not know, if the program says that it has to (`uverbs_set_attr`), and one
    /// that stands there twice.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(known) = known(self.header.object, self.header.method) else {
            return Ok(());
        };
        for (index, attr) in self.attrs.iter().enumerate() {
            let before = self.attrs.iter().take(index);
            match known.contains(&attr.id) {
                false if attr.flags & MANDATORY != 0 => return Err(libc::EPROTONOSUPPORT),
                true if before.into_iter().any(|other| other.id == attr.id) => {
                    return Err(libc::EINVAL);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn find(&self, id: u16) -> Option<&Attr> {
        self.attrs.iter().find(|attr| attr.id == id)
    }

    /// Says in the call that an attribute has an answer, and which if it is a number.
    fn put_back(&self, id: u16, value: Option<u64>) -> Result<()> {
        let index = self.attrs.iter().position(|attr| attr.id == id);
        let index = index.ok_or(libc::EINVAL)?;
        let start = (index * size_of::<Attr>()) as u64;
        let start = self.start.wrapping_add(start);
        let flags = self.attrs[index].flags | VALID_OUTPUT;
        let at = |offset: usize| start.wrapping_add(offset as u64);
        if let Some(value) = value {
            program_memory::write(at(offset_of!(Attr, data)), value.as_bytes())?;
        }
        program_memory::write(at(offset_of!(Attr, flags)), flags.as_bytes())
    }

    /// Returns `true` if an attribute is there.
    pub(crate) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// The kind of an attribute that has several.
    pub(crate) fn element(&self, id: u16) -> Result<u8> {
        let attr = self.find(id).ok_or(libc::EINVAL)?;
        Ok(attr.element.to_ne_bytes()[0])
    }

    /// A number, which stands in the attribute itself.
    pub(crate) fn number(&self, id: u16) -> Result<u64> {
        self.find(id).map(|attr| attr.data).ok_or(libc::EINVAL)
    }

    /// Flags, of which a program gives some of `allowed` or none: `uverbs_get_flags64`.
    pub(crate) fn flags(&self, id: u16, allowed: u64) -> Result<u64> {
        let flags = match self.find(id) {
            None => 0,
            Some(Attr { len: 8, data, .. }) => *data,
            Some(Attr { len: 4, data, .. }) => *data & u64::from(u32::MAX),
            Some(_) => return Err(libc::EINVAL),
        };
        match flags & !allowed {
            0 => Ok(flags),
            _ => Err(libc::EINVAL),
        }
    }

    /// A value that goes in, from its beginning. The fields that the program does not know are zero.
    pub(crate) fn input<T: FromBytes + IntoBytes + FromZeros>(&self, id: u16) -> Result<T> {
        let mut value = T::new_zeroed();
        if self.find(id).is_some() {
            let given = self.bytes(id)?;
            let known = value.as_mut_bytes();
            let len = known.len().min(given.len());
            known[..len].copy_from_slice(&given[..len]);
        }
        Ok(value)
    }

    /// The bytes of an attribute.
    pub(crate) fn bytes(&self, id: u16) -> Result<Vec<u8>> {
        let attr = self.find(id).ok_or(libc::EINVAL)?;
        let len = usize::from(attr.len);
        if let Some(inline) = attr.data.to_ne_bytes().get(..len) {
            return Ok(inline.to_vec());
        }
        let mut bytes = vec![0; len];
        program_memory::read(attr.data, &mut bytes)?;
        Ok(bytes)
    }

    /// Answers with a number in the attribute itself, as the handle of a new object is one.
    pub(crate) fn set_number(&self, id: u16, value: u64) -> Result<()> {
        self.put_back(id, Some(value))
    }

    /// The size of the buffer for an answer.
    pub(crate) fn buffer_size(&self, id: u16) -> usize {
        self.find(id).map_or(0, |attr| attr.len.into())
    }

    /// Writes an answer, as much of it as the program's buffer takes; beyond it are zeros.
    pub(crate) fn output<T: IntoBytes + Immutable>(&mut self, id: u16, value: &T) {
        self.output_bytes(id, value.as_bytes());
    }

    /// Writes an answer of any length, as [`output`](Self::output) does.
    pub(crate) fn output_bytes(&mut self, id: u16, bytes: &[u8]) {
        if let Some(attr) = self.find(id).filter(|attr| attr.data != 0) {
            let size = usize::from(attr.len);
            let mut answer = vec![0; size];
            let len = bytes.len().min(size);
            answer[..len].copy_from_slice(&bytes[..len]);
            let written = program_memory::write(attr.data, &answer);
            if written.and_then(|()| self.put_back(id, None)).is_err() {
                self.lost = true;
            }
        }
    }
}

/// Memory where the program says. An error if addresses do not go so far, or if the program itself has not these rights to it.
pub(crate) fn region(address: u64, len: u64, writable: bool) -> Result<NonNull<[u8]>> {
    let place = place(address, len)?;
    program_memory::check(address, place.len(), writable)?;
    Ok(place)
}

/// Memory where the program says, whether it is there or not.
pub(crate) fn place(address: u64, len: u64) -> Result<NonNull<[u8]>> {
    let start = NonNull::new(address as *mut u8).ok_or(libc::EFAULT)?;
    let len = isize::try_from(len)
        .map_err(|_| libc::EINVAL)?
        .unsigned_abs();
    address.checked_add(len as u64).ok_or(libc::EINVAL)?;
    Ok(NonNull::slice_from_raw_parts(start, len))
}
