//! Reads a shared object's dynamic symbols from its file, without loading it.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use object::elf::{
    EM_386, EM_AARCH64, EM_ARM, EM_LOONGARCH, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, ET_DYN,
    FileHeader32, FileHeader64, STB_WEAK, STT_FUNC, STT_GNU_IFUNC,
};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};

/// A dynamic symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, without a version.
    pub name: String,
    /// Whether the symbol is weak, so that it may be missing.
    pub weak: bool,
    /// Whether it is a function.
    pub function: bool,
}

/// The dynamic symbols of a shared object.
#[derive(Clone, Debug, Default)]
pub struct SharedObject {
    /// Its exported symbols.
    pub exports: Vec<Symbol>,
    /// Its imported symbols.
    pub imports: Vec<Symbol>,
}

/// Why a file is not a library for this machine.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file is not an ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// The file is corrupt.
    #[error("corrupt ELF file: {0}")]
    Format(#[from] object::Error),
    /// The file is for another machine.
    #[error("built for {found}, but this machine is {own}")]
    OtherMachine {
        /// The file's machine.
        found: Machine,
        /// This machine.
        own: Machine,
    },
    /// The file is a program or an object file.
    #[error("not a shared object (type {kind})")]
    OtherKind {
        /// `e_type`.
        kind: u16,
    },
}

/// The machine in the header of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// 1: 32 bits, 2: 64 bits.
    class: u8,
    /// 1: little endian, 2: big endian.
    order: u8,
    /// `e_machine`.
    number: u16,
}

impl Machine {
    /// Returns the machine of this program.
    ///
    /// # Errors
    /// If this program's own file cannot be read.
    pub fn own() -> Result<Self, ElfError> {
        let mut header = [0; 20];
        File::open("/proc/self/exe")?.read_exact(&mut header)?;
        Self::of(&header)
    }

    fn of(file: &[u8]) -> Result<Self, ElfError> {
        match file.first_chunk::<20>() {
            Some([0x7f, b'E', b'L', b'F', class, order, .., high, low]) => Ok(Self {
                class: *class,
                order: *order,
                number: match order {
                    2 => u16::from_be_bytes([*high, *low]),
                    _ => u16::from_le_bytes([*high, *low]),
                },
            }),
            _ => Err(ElfError::NotElf),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.number {
            EM_386 => "x86",
            EM_X86_64 if self.class == 1 => "x32",
            EM_X86_64 => "x86-64",
            EM_ARM => "ARM",
            EM_AARCH64 => "AArch64",
            EM_PPC64 => "PowerPC 64",
            EM_S390 => "S/390",
            EM_RISCV => "RISC-V",
            EM_LOONGARCH => "LoongArch",
            other => return write!(f, "the machine of ELF number {other}"),
        };
        let bits = if self.class == 1 { 32 } else { 64 };
        let order = if self.order == 2 { "big" } else { "little" };
        write!(f, "{name} ({bits} bits, {order} endian)")
    }
}

impl SharedObject {
    /// Reads the dynamic symbols of a file.
    ///
    /// # Errors
    /// If it is not a shared object for this machine.
    pub fn read(path: &Path) -> Result<Self, ElfError> {
        let bytes = std::fs::read(path)?;
        let (found, own) = (Machine::of(&bytes)?, Machine::own()?);
        match (found == own, found.class) {
            (false, _) => Err(ElfError::OtherMachine { found, own }),
            (true, 1) => Self::parse::<FileHeader32<Endianness>>(&bytes),
            (true, _) => Self::parse::<FileHeader64<Endianness>>(&bytes),
        }
    }

    fn parse<Header: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Result<Self, ElfError> {
        use object::read::elf::Sym as _;

        let file = ElfFile::<Header>::parse(bytes)?;
        let kind = file.elf_header().e_type(file.endian());
        if kind != ET_DYN {
            return Err(ElfError::OtherKind { kind });
        }
        let mut found = Self::default();
        for symbol in file.dynamic_symbols() {
            let raw = symbol.elf_symbol();
            let known = Symbol {
                name: symbol.name()?.to_owned(),
                weak: raw.st_bind() == STB_WEAK,
                function: [STT_FUNC, STT_GNU_IFUNC].contains(&raw.st_type()),
            };
            if known.name.is_empty() || symbol.is_local() {
                continue;
            }
            if symbol.is_undefined() {
                found.imports.push(known);
            } else {
                found.exports.push(known);
            }
        }
        Ok(found)
    }
}

/// Returns the dynamic loader that a program names, if any.
pub fn loader_of(program: &Path) -> Option<PathBuf> {
    let bytes = std::fs::read(program).ok()?;
    match Machine::of(&bytes).ok()?.class {
        1 => loader::<FileHeader32<Endianness>>(&bytes),
        _ => loader::<FileHeader64<Endianness>>(&bytes),
    }
}

fn loader<Header: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Option<PathBuf> {
    let header = Header::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let path = segments
        .iter()
        .find_map(|segment| segment.interpreter(endian, bytes).ok()?)?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose header names another machine, made from this program's.
    fn of_another_machine(change: impl Fn(&mut [u8])) -> ElfError {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib.so");
        let mut bytes = [0; 64];
        let mut own = File::open("/proc/self/exe").unwrap();
        own.read_exact(&mut bytes).unwrap();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        SharedObject::read(&path).unwrap_err()
    }

    #[test]
    fn the_machine_is_the_one_that_runs() {
        let foreign = if Machine::own().unwrap().number == EM_RISCV {
            EM_S390
        } else {
            EM_RISCV
        };
        let error =
            of_another_machine(|bytes| bytes[18..20].copy_from_slice(&foreign.to_ne_bytes()));
        let text = error.to_string();
        assert!(matches!(error, ElfError::OtherMachine { .. }), "{text}");
        assert!(
            text.contains(&Machine::own().unwrap().to_string()),
            "{text}"
        );
        let error = of_another_machine(|bytes| bytes[4] ^= 3);
        assert!(matches!(error, ElfError::OtherMachine { .. }), "{error}");
        let error = of_another_machine(|bytes| bytes[0] = 0);
        assert!(matches!(error, ElfError::NotElf), "{error}");
    }

    #[test]
    fn a_program_names_its_loader() {
        let loader = loader_of(Path::new("/proc/self/exe")).unwrap();
        assert!(loader.is_file(), "{}", loader.display());
        assert_eq!(loader_of(Path::new("/proc/self/status")), None);
    }
}
