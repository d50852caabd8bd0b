//! What a shared object says about itself, read from its file: nothing of it is loaded or run.

use std::path::Path;

use object::elf::{EM_X86_64, ET_DYN, FileHeader64, STB_WEAK, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{ElfFile, FileHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};

/// A dynamic symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, without a version.
    pub name: String,
    /// Whether the object can do without it.
    pub weak: bool,
    /// Whether it is a function.
    pub function: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct SharedObject {
    /// What it offers.
    pub exports: Vec<Symbol>,
    /// What it wants from others.
    pub imports: Vec<Symbol>,
}

/// The file is no library for this machine.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is something else.
    #[error("not an ELF file")]
    NotElf,
    /// It is no 64-bit ELF file, or damaged.
    #[error("not a 64-bit ELF file, or damaged: {0}")]
    Format(#[from] object::Error),
    /// It is for another machine, or no shared object.
    #[error("not a shared object for x86-64 (type {kind}, machine {machine})")]
    Other {
        /// `e_type`.
        kind: u16,
        /// `e_machine`.
        machine: u16,
    },
}

impl SharedObject {
    /// Reads the dynamic symbols of a file.
    ///
    /// # Errors
    /// If it is no shared object for this machine.
    pub fn read(path: &Path) -> Result<Self, ElfError> {
        let bytes = std::fs::read(path)?;
        if !bytes.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        let file = ElfFile::<FileHeader64<Endianness>>::parse(&*bytes)?;
        let header = file.elf_header();
        let endian = file.endian();
        let (kind, machine) = (header.e_type(endian), header.e_machine(endian));
        if (kind, machine) != (ET_DYN, EM_X86_64) {
            return Err(ElfError::Other { kind, machine });
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
