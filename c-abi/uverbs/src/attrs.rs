//! The attributes of a call: what goes in and where the answer goes.

// UNSAFETY: reads and writes the program's memory, where the program says.
#![expect(unsafe_code)]

use bareverbs_node::verbs::CommandError;
use libc::{c_int, c_void};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::abi::{Attr, Header, VALID_OUTPUT};

/// An error number of the kernel's ABI.
pub(crate) type Result<T, E = c_int> = std::result::Result<T, E>;

/// An error number for what the firmware answers.
pub(crate) fn refused(error: CommandError) -> i32 {
    log::warn!("{error}");
    error.errno().abs()
}

/// A call and its attributes, which are the program's memory until it returns.
pub(crate) struct Args<'a> {
    pub(crate) header: Header,
    attrs: &'a mut [Attr],
}

impl Args<'_> {
    /// The call behind the third argument of `ioctl`.
    ///
    /// # Safety
    /// It is the program's for `RDMA_VERBS_IOCTL`, and stays as long as the value.
    pub(crate) unsafe fn new(call: *mut c_void) -> Result<Self> {
        // SAFETY: the caller's promise.
        let header = unsafe { call.cast::<Header>().read() };
        let expected = size_of::<Header>() + usize::from(header.num_attrs) * size_of::<Attr>();
        if usize::from(header.length) != expected {
            return Err(libc::EINVAL);
        }
        // SAFETY: the same; the attributes stand behind the header, which has said how long the call is.
        let attrs = unsafe {
            let first = call.cast::<Header>().add(1).cast::<Attr>();
            std::slice::from_raw_parts_mut(first, header.num_attrs.into())
        };
        Ok(Self { header, attrs })
    }

    fn find(&mut self, id: u16) -> Option<&mut Attr> {
        self.attrs.iter_mut().find(|attr| attr.id == id)
    }

    /// A number, which stands in the attribute itself.
    pub(crate) fn number(&mut self, id: u16) -> Result<u64> {
        self.find(id).map(|attr| attr.data).ok_or(libc::EINVAL)
    }

    /// A value that goes in, from its beginning. The fields that the program does not know are zero.
    pub(crate) fn input<T: FromBytes + IntoBytes + FromZeros>(&mut self, id: u16) -> Result<T> {
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
    pub(crate) fn bytes(&mut self, id: u16) -> Result<Vec<u8>> {
        let attr = self.find(id).ok_or(libc::EINVAL)?;
        let len = usize::from(attr.len);
        let from = match len <= size_of::<u64>() {
            true => (&raw const attr.data).cast::<u8>(),
            false => attr.data as *const u8,
        };
        if from.is_null() {
            return Err(libc::EFAULT);
        }
        let mut bytes = vec![0; len];
        // SAFETY: the program's promise: there are as many bytes as it says.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
        Ok(bytes)
    }

    /// Answers with a number in the attribute itself, as the handle of a new object is one.
    pub(crate) fn set_number(&mut self, id: u16, value: u64) -> Result<()> {
        let attr = self.find(id).ok_or(libc::EINVAL)?;
        attr.data = value;
        attr.flags |= VALID_OUTPUT;
        Ok(())
    }

    /// The size of the buffer for an answer.
    pub(crate) fn buffer_size(&mut self, id: u16) -> usize {
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
            let len = bytes.len().min(size);
            let to = attr.data as *mut u8;
            // SAFETY: the program's promise: the buffer is as long as it says.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
                std::ptr::write_bytes(to.add(len), 0, size - len);
            }
            attr.flags |= VALID_OUTPUT;
        }
    }
}
