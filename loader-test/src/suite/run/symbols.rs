//! Finds functions by address in another process, from its memory map and the symbols of the mapped files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

/// A mapped part of a file.
struct Mapped<'a> {
    start: u64,
    end: u64,
    offset: u64,
    path: &'a Path,
}

/// The functions of a file, by start address.
#[derive(Default)]
struct Functions {
    /// Start in the file, end in the file, address there.
    segments: Vec<(u64, u64, u64)>,
    /// Address, size, name.
    symbols: Vec<(u64, u64, String)>,
}

/// The symbols of mapped files.
pub(super) struct Symbols {
    /// The program whose functions are hidden.
    program: PathBuf,
    known: HashMap<PathBuf, Functions>,
}

impl Symbols {
    /// Creates the symbols for stacks in forks of a program, whose functions are hidden.
    pub fn new(program: &Path) -> Self {
        Self {
            program: program
                .canonicalize()
                .unwrap_or_else(|_| program.to_owned()),
            known: HashMap::new(),
        }
    }

    /// Returns the frames of a stack as lines; frames of the program are only counted.
    pub fn describe(&mut self, frames: &[u64], maps: &str) -> Vec<String> {
        let mapped: Vec<Mapped<'_>> = maps.lines().filter_map(mapped).collect();
        let mut lines = Vec::new();
        let mut own = 0;
        for (index, address) in frames.iter().enumerate() {
            // A return address is behind the call, possibly in the next function.
            let address = address.saturating_sub(u64::from(index > 0));
            let place = mapped
                .iter()
                .find(|mapped| (mapped.start..mapped.end).contains(&address));
            if place.is_some_and(|place| place.path == self.program) {
                own += 1;
                continue;
            }
            push_own(&mut lines, &mut own);
            lines.push(match place {
                Some(place) => self.frame(address - place.start + place.offset, place.path),
                None => format!("    {address:#x}"),
            });
        }
        push_own(&mut lines, &mut own);
        lines
    }

    fn frame(&mut self, offset: u64, path: &Path) -> String {
        let file = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        let functions = self
            .known
            .entry(path.to_owned())
            .or_insert_with(|| Functions::read(path).unwrap_or_default());
        match functions.at(offset) {
            Some((name, into)) => format!("    {name}+{into:#x} ({file})"),
            None => format!("    {offset:#x} in the file ({file})"),
        }
    }
}

fn push_own(lines: &mut Vec<String>, own: &mut usize) {
    if *own > 0 {
        lines.push("    (loader-test)".to_owned());
        *own = 0;
    }
}

/// Parses a line of /proc/PID/maps, if it is for a file.
fn mapped(line: &str) -> Option<Mapped<'_>> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let offset = words.nth(1)?;
    let path = words.nth(2)?.trim_start();
    Some(Mapped {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: Path::new(path.strip_prefix('/').map(|_| path)?),
    })
}

impl Functions {
    fn read(path: &Path) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (start, length) = segment.file_range();
            (start, start + length, segment.address())
        });
        let symbols = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| {
                Some((
                    symbol.address(),
                    symbol.size(),
                    symbol.name().ok()?.to_owned(),
                ))
            });
        let mut functions = Self {
            segments: segments.collect(),
            symbols: symbols.collect(),
        };
        functions.symbols.sort_unstable();
        Some(functions)
    }

    /// Returns the function at an offset in the file, and the offset in the function.
    fn at(&self, offset: u64) -> Option<(String, u64)> {
        let (start, _, address) = self
            .segments
            .iter()
            .find(|(start, end, _)| (*start..*end).contains(&offset))?;
        let address = address + (offset - start);
        let behind = self
            .symbols
            .partition_point(|(start, ..)| *start <= address);
        let (start, size, name) = self.symbols[..behind].last()?;
        // A function without a size may reach to the offset.
        let is_inside = *size == 0 || address < start + size;
        is_inside.then(|| (demangled(name), address - start))
    }
}

/// Demangles a name.
fn demangled(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_map_are_read() {
        let line = "7f00-8f00 r-xp 00001000 fe:01 1234                       /lib/my file.so";
        let found = mapped(line).unwrap();
        assert_eq!(
            (found.start, found.end, found.offset),
            (0x7f00, 0x8f00, 0x1000)
        );
        assert_eq!(found.path, Path::new("/lib/my file.so"));
        assert!(mapped("7f00-8f00 rw-p 00000000 00:00 0                  [heap]").is_none());
        assert!(mapped("7f00-8f00 rw-p 00000000 00:00 0").is_none());
    }

    #[test]
    fn a_function_of_this_program_is_found() {
        let program = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let address = lines_of_the_map_are_read as fn() as usize as u64;
        let mut symbols = Symbols::new(Path::new("/another"));
        let told = symbols.describe(&[address], &maps);
        assert!(
            told[0].contains("lines_of_the_map_are_read+0x0"),
            "{told:?}"
        );
        let mut own = Symbols::new(&program);
        assert_eq!(own.describe(&[address], &maps), ["    (loader-test)"]);
    }
}
