//! Reads lines of an untrusted text file in bounded memory.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Bytes to read at a time: a dump can have gigabytes.
const BUFFER: usize = 64 << 10;

/// Bytes of a line that are kept. Longer lines are legal, and lose the rest.
pub(crate) const KEPT: usize = 4096;

/// The most bytes of a line. A longer one is not text: a sparse file of gigabytes must not keep the daemon busy for
/// minutes.
const LINE_LIMIT: u64 = 16 << 20;

/// Opens a file to read its lines. A FIFO without a writer reads as empty and does not block. Devices, which may be
/// endless, are an error, except /dev/null.
pub(crate) fn open(path: &Path) -> io::Result<BufReader<File>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(if cfg!(miri) { 0 } else { libc::O_NONBLOCK }) // Miri supports no flags.
        .open(path)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    let is_null = kind.is_char_device() && metadata.rdev() == libc::makedev(1, 3);
    if (kind.is_char_device() || kind.is_block_device()) && !is_null {
        return Err(io::Error::from_raw_os_error(libc::ENOTSUP));
    }
    Ok(BufReader::with_capacity(BUFFER, file))
}

/// A line without its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line<'a> {
    /// From 1.
    pub number: u64,
    /// At most [`KEPT`] bytes.
    pub bytes: &'a [u8],
    /// Whether the line is longer than `bytes`.
    pub is_cut: bool,
}

impl<'a> Line<'a> {
    /// Returns the words of the line, as `sscanf`'s `%s` finds them. The flag is true for a word that ends where the line was
    /// cut, so that it may be incomplete.
    pub fn words(self) -> impl Iterator<Item = (&'a [u8], bool)> {
        let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
        let end = self.bytes.as_ptr_range().end;
        self.bytes
            .split(is_space)
            .filter(|word| !word.is_empty())
            .map(move |word| (word, self.is_cut && word.as_ptr_range().end == end))
    }
}

/// Reads lines one after the other.
pub(crate) struct Lines<R> {
    reader: R,
    number: u64,
    kept: Vec<u8>,
    /// How many more bytes may be read.
    allowance: u64,
}

impl<R: BufRead> Lines<R> {
    /// Reads the lines of `reader`, at most `limit` bytes: this bounds reads from endless files.
    pub fn new(reader: R, limit: u64) -> Self {
        Self {
            reader,
            number: 0,
            kept: Vec::new(),
            allowance: limit,
        }
    }

    /// Returns the next line, or `None` at the end. EFBIG if the text or a line is too long.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.kept.clear();
        let mut is_cut = false;
        let mut length = 0;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                if length == 0 {
                    return Ok(None);
                }
                break;
            }
            let end = memchr::memchr(b'\n', chunk);
            let text = &chunk[..end.unwrap_or(chunk.len())];
            let room = KEPT - self.kept.len();
            is_cut |= text.len() > room;
            self.kept.extend_from_slice(&text[..text.len().min(room)]);
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(used);
            length += used as u64;
            self.spend(used, length)?;
            if end.is_some() {
                break;
            }
        }
        self.number += 1;
        if self.number == 1 && self.kept.starts_with(b"\xef\xbb\xbf") {
            self.kept.drain(..3);
        }
        Ok(Some(Line {
            number: self.number,
            bytes: &self.kept,
            is_cut,
        }))
    }

    /// Skips lines up to the next one whose first byte after white space is one of three, or to the end. Call this
    /// between two lines. Much faster than [`next`](Self::next) if these bytes are rare in the skipped lines.
    pub fn skip_to(&mut self, first: [u8; 3]) -> io::Result<()> {
        // For the line in which the chunk begins: its length so far, and whether it is all white space.
        let mut length = 0;
        let mut is_blank = true;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                return Ok(());
            }
            let is_start = |at: &usize| {
                let before = chunk[..*at]
                    .iter()
                    .rev()
                    .find(|byte| **byte == b'\n' || !byte.is_ascii_whitespace());
                before.map_or(is_blank, |byte| *byte == b'\n')
            };
            let found = memchr::memchr3_iter(first[0], first[1], first[2], chunk).find(is_start);
            let used = found.unwrap_or(chunk.len());
            let skipped = &chunk[..used];
            self.number += memchr::memchr_iter(b'\n', skipped).count() as u64;
            let last_line = memchr::memrchr(b'\n', skipped).map_or(0, |at| at + 1);
            if last_line > 0 {
                (length, is_blank) = (0, true);
            }
            length += (used - last_line) as u64;
            is_blank &= skipped[last_line..].trim_ascii().is_empty();
            self.reader.consume(used);
            self.spend(used, length)?;
            if found.is_some() {
                return Ok(());
            }
        }
    }

    /// Counts bytes read, and the length of the present line.
    fn spend(&mut self, bytes: usize, line: u64) -> io::Result<()> {
        match self.allowance.checked_sub(bytes as u64) {
            Some(rest) if line <= LINE_LIMIT => {
                self.allowance = rest;
                Ok(())
            }
            _ => Err(io::Error::from_raw_os_error(libc::EFBIG)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &[u8], buffer: usize) -> Vec<(u64, Vec<u8>, bool)> {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, text), u64::MAX);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push((line.number, line.bytes.to_vec(), line.is_cut));
        }
        found
    }

    #[test]
    fn ends_of_lines_and_of_the_file() {
        let expected = vec![
            (1, b"a".to_vec(), false),
            (2, vec![], false),
            (3, b"b\r".to_vec(), false),
        ];
        assert_eq!(all(b"a\n\nb\r\n", 2), expected);
        assert_eq!(all(b"a\n\nb\r", 2), expected);
        assert_eq!(all(b"", 2), []);
        assert_eq!(all(b"\xef\xbb\xbfa\n", 2), [(1, b"a".to_vec(), false)]);
    }

    #[test]
    fn a_long_line_is_one_line() {
        for (length, is_cut) in [
            (KEPT - 1, false),
            (KEPT, false),
            (KEPT + 1, true),
            (9 * KEPT, true),
        ] {
            let mut text = vec![b'x'; length];
            text.extend_from_slice(b"\nnext");
            let found = all(&text, 1000);
            assert_eq!(found[0], (1, text[..length.min(KEPT)].to_vec(), is_cut));
            assert_eq!(found[1..], [(2, b"next".to_vec(), false)]);
        }
    }

    #[test]
    fn only_a_word_at_the_cut_may_be_incomplete() {
        let mut text = b"first ".to_vec();
        text.resize(KEPT + 1, b'x');
        let mut lines = Lines::new(&text[..], u64::MAX);
        let words: Vec<_> = lines
            .next()
            .unwrap()
            .unwrap()
            .words()
            .map(|(word, cut)| (word.len(), cut))
            .collect();
        assert_eq!(words, [(5, false), (KEPT - 6, true)]);

        text[KEPT - 1] = b' ';
        let mut lines = Lines::new(&text[..], u64::MAX);
        let words: Vec<_> = lines
            .next()
            .unwrap()
            .unwrap()
            .words()
            .map(|(word, cut)| (word.len(), cut))
            .collect();
        assert_eq!(words, [(5, false), (KEPT - 7, false)]);
    }

    #[test]
    fn words_are_those_of_sscanf() {
        let line = Line {
            number: 1,
            bytes: b" \ta\x0b\x0cb \r",
            is_cut: false,
        };
        let words: Vec<_> = line.words().map(|(word, _)| word).collect();
        assert_eq!(words, [b"a", b"b"]);
    }

    #[test]
    fn skipping_ends_at_the_first_line_that_begins_so() {
        let text = b"x S\n\r\t\n xC\n \t Rest of it\nSecond\n\n";
        for buffer in 1..text.len() {
            let mut lines = Lines::new(BufReader::with_capacity(buffer, &text[..]), u64::MAX);
            let mut found = Vec::new();
            loop {
                lines.skip_to(*b"SCR").unwrap();
                let Some(line) = lines.next().unwrap() else {
                    break;
                };
                found.push((line.number, line.bytes.trim_ascii().to_vec()));
            }
            let expected = [(4, b"Rest of it".to_vec()), (5, b"Second".to_vec())];
            assert_eq!(found, expected, "{buffer}");
        }
        let mut lines = Lines::new(BufReader::new(io::repeat(0)), u64::MAX);
        let error = lines.skip_to(*b"SCR").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
        let mut lines = Lines::new(&b"ab\ncd"[..], 4);
        assert!(lines.skip_to(*b"SCR").is_err());
        let mut lines = Lines::new(&b"ab\ncd"[..], 5);
        assert!(lines.skip_to(*b"SCR").is_ok());
    }

    #[test]
    fn what_has_no_end_is_given_up() {
        let mut lines = Lines::new(BufReader::new(io::repeat(0)), 1 << 20);
        let error = lines.next().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
        assert!(lines.kept.capacity() <= 2 * KEPT);

        // An endless line is an error too, long before the limit of the text.
        let mut lines = Lines::new(BufReader::new(io::repeat(0)), u64::MAX);
        assert_eq!(lines.next().unwrap_err().raw_os_error(), Some(libc::EFBIG));

        // A file of just the limit is no error.
        let mut lines = Lines::new(&b"ab\ncd"[..], 5);
        assert!(lines.next().unwrap().is_some());
        assert!(lines.next().unwrap().is_some());
        assert!(lines.next().unwrap().is_none());
    }

    #[test]
    fn a_device_is_not_a_text() {
        for device in ["/dev/zero", "/dev/urandom", "/dev/tty"] {
            let result = open(Path::new(device));
            // Without a terminal, the last device fails to open.
            let error = result.err().and_then(|error| error.raw_os_error());
            assert!(
                error == Some(libc::ENOTSUP) || error == Some(libc::ENXIO),
                "{device}: {error:?}"
            );
        }
        let mut lines = Lines::new(open(Path::new("/dev/null")).unwrap(), u64::MAX);
        assert_eq!(lines.next().unwrap(), None);
    }

    proptest! {
        #[test]
        fn skipping_skips_no_line_that_begins_so(text in "[ \\r\\nSCRx]{0,60}", buffer in 1_usize..9) {
            let begins_so = |line: &&(u64, Vec<u8>, bool)| {
                line.1.trim_ascii().first().is_some_and(|first| b"SCR".contains(first))
            };
            let expected = all(text.as_bytes(), buffer);
            let expected: Vec<_> = expected.iter().filter(begins_so).map(|line| line.0).collect();
            let mut lines = Lines::new(BufReader::with_capacity(buffer, text.as_bytes()), u64::MAX);
            let mut found = Vec::new();
            loop {
                lines.skip_to(*b"SCR").unwrap();
                match lines.next().unwrap() {
                    Some(line) => found.push(line.number),
                    None => break,
                }
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn agrees_with_the_standard_library(text: Vec<u8>, buffer in 1_usize..9) {
            prop_assume!(!text.starts_with(b"\xef\xbb\xbf"));
            let expected: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let expected = match expected.split_last() {
                Some((last, rest)) if last.is_empty() => rest.to_vec(),
                _ => expected,
            };
            let found: Vec<Vec<u8>> = all(&text, buffer).into_iter().map(|(_, bytes, _)| bytes).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
