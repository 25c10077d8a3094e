//! The function's PCI configuration space.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The command register (PCI Local Bus 3.0, 6.2.2), and the bits of it that matter here.
pub(crate) const COMMAND: u16 = 0x04;
/// The function answers to its memory BARs.
pub(crate) const COMMAND_MEMORY: u16 = 1 << 1;
/// The function may start bus cycles: DMA, and the writes that are its interrupts.
pub(crate) const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// The function may not assert INTx.
pub(crate) const COMMAND_INTX_DISABLE: u16 = 1 << 10;

/// Configuration space through the device's file, where it starts at an offset.
///
/// Reads and writes are whole or an error: the ready-made helpers of vfio-ioctls log failures and go on with what
/// happened to be in the buffer.
#[derive(Debug)]
pub(crate) struct ConfigSpace {
    file: File,
    start: u64,
    len: u64,
}

impl ConfigSpace {
    pub(crate) fn new(file: File, start: u64, len: u64) -> Self {
        Self { file, start, len }
    }

    /// Reads all of `data` from `offset` on.
    pub(crate) fn read(&self, offset: u16, data: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(data, self.at(offset, data.len())?)
    }

    /// Writes all of `data` from `offset` on.
    pub(crate) fn write(&self, offset: u16, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, self.at(offset, data.len())?)
    }

    /// Reads a 16-bit register.
    pub(crate) fn read_u16(&self, offset: u16) -> io::Result<u16> {
        let mut data = [0; 2];
        self.read(offset, &mut data)?;
        Ok(u16::from_le_bytes(data))
    }

    /// Sets and clears bits of a 16-bit register, and returns what it reads then.
    pub(crate) fn update_u16(&self, offset: u16, set: u16, clear: u16) -> io::Result<u16> {
        let value = self.read_u16(offset)? & !clear | set;
        self.write(offset, &value.to_le_bytes())?;
        self.read_u16(offset)
    }

    /// Where in the file an access goes that lies in configuration space as a whole.
    fn at(&self, offset: u16, len: usize) -> io::Result<u64> {
        let offset = u64::from(offset);
        let inside =
            u64::try_from(len).is_ok_and(|len| len <= self.len && offset <= self.len - len);
        if !inside {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{len} bytes at {offset:#x} are not in configuration space ({:#x} bytes)",
                    self.len
                ),
            ));
        }
        Ok(self.start + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scratch_file;

    #[test]
    fn accesses_go_to_the_place_in_the_file() {
        let (file, path) = scratch_file(&[0; 0x2000]);
        let config = ConfigSpace::new(file, 0x1000, 0x100);
        config.write(COMMAND, &[0x06, 0x01]).unwrap();
        assert_eq!(config.read_u16(COMMAND).unwrap(), 0x0106);
        assert_eq!(
            config
                .update_u16(COMMAND, COMMAND_MEMORY, COMMAND_BUS_MASTER)
                .unwrap(),
            0x0102
        );
        let bytes = std::fs::read(path.path()).unwrap();
        assert_eq!(bytes[0x1004..0x1006], [0x02, 0x01]);
        assert!(bytes[..0x1004].iter().all(|b| *b == 0));
    }

    #[test]
    fn accesses_outside_are_refused() {
        let (file, _path) = scratch_file(&[0; 0x2000]);
        let config = ConfigSpace::new(file, 0x1000, 0x100);
        let mut data = [0; 4];
        assert!(config.read(0xfc, &mut data).is_ok());
        for offset in [0xfd, 0x100, 0xffff] {
            let error = config.read(offset, &mut data).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(config.write(offset, &data).is_err());
        }
        assert!(config.read(0, &mut [0; 0x101]).is_err());
    }

    #[test]
    fn a_short_answer_is_an_error() {
        let (file, _path) = scratch_file(&[0; 0x1003]);
        let config = ConfigSpace::new(file, 0x1000, 0x100);
        assert_eq!(
            config.read(0, &mut [0; 4]).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
