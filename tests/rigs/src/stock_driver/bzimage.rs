//! The content of a Linux `bzImage`: QEMU boots the kernel itself as well, which saves an emulated processor the unpacking.

use std::io::Read;

/// Where the setup header has what is needed here (Linux, "The Linux/x86 Boot Protocol").
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LEN: usize = 0x24c;

/// The kernel, an ELF file; `None` if it is packed otherwise than with zstd.
pub(super) fn kernel(image: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let payload = payload(image).ok_or("this is no bzImage")?;
    if !payload.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Ok(None);
    }
    let fail = |error: &dyn std::fmt::Display| format!("the kernel in it: {error}");
    let mut unpacked = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(payload)
        .map_err(|error| fail(&error))?
        .read_to_end(&mut unpacked)
        .map_err(|error| fail(&error))?;
    if unpacked.starts_with(b"\x7fELF") {
        Ok(Some(unpacked))
    } else {
        Err(fail(&"no ELF file"))
    }
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| {
        let bytes = image.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let setup = match image[SETUP_SECTORS] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup + 1) * 512 + word(PAYLOAD_OFFSET)?;
    let end = start.checked_add(word(PAYLOAD_LEN)?)?;
    image.get(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image with one sector of setup and this payload, 16 bytes behind it.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024 + 16];
        image[SETUP_SECTORS] = 1;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_OFFSET] = 16;
        image[PAYLOAD_LEN..PAYLOAD_LEN + 2].copy_from_slice(&(payload.len() as u16).to_le_bytes());
        image.extend(payload);
        image
    }

    #[test]
    fn finds_the_kernel() {
        // One raw block, with a content size of one byte (RFC 8878).
        let packed = |text: &[u8]| {
            let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, text.len() as u8];
            frame.extend([(text.len() as u8) << 3 | 1, 0, 0]);
            frame.extend(text);
            frame
        };
        let elf = image(&packed(b"\x7fELF and on"));
        assert_eq!(kernel(&elf), Ok(Some(b"\x7fELF and on".to_vec())));
        assert!(kernel(&image(&packed(b"something"))).is_err());
        // What the kernel's build appends: the length.
        let mut packed = packed(b"\x7fELF");
        packed.extend(4_u32.to_le_bytes());
        assert_eq!(kernel(&image(&packed)), Ok(Some(b"\x7fELF".to_vec())));
        assert_eq!(kernel(&image(b"\xfd7zXZ\0")), Ok(None));
        assert!(kernel(&elf[..elf.len() - 1]).is_err());
        assert!(kernel(b"\x7fELF").is_err());
    }
}
