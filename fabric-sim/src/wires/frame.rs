//! A datagram's bytes on a wire; [`super`] has the table.

use crate::model::data_path::{Datagram, GlobalRouteHeader, MAX_PAYLOAD};

/// Length of a frame without its payload.
pub const HEADER: usize = 72;
/// Maximum length of a frame.
pub const MAX_FRAME: usize = HEADER + MAX_PAYLOAD;

const MAGIC: [u8; 4] = *b"FSUD";
const VERSION: u8 = 1;
const HAS_GRH: u8 = 1;
const HAS_IMMEDIATE: u8 = 2;
const SOLICITED: u8 = 4;
const MAX_QPN: u32 = 0x00ff_ffff;
const MAX_FLOW_LABEL: u32 = 0x000f_ffff;

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAFrame {
    /// They do not start with `FSUD`.
    #[error("it does not start with FSUD")]
    Foreign,
    /// The sender uses another release of this library.
    #[error("its version is {0}, not {VERSION}: use one release of fabric-sim in all processes")]
    Version(u8),
    /// The length does not match the header.
    #[error("its length is wrong")]
    Length,
    /// A field is out of range.
    #[error("its {0} is out of range")]
    Field(&'static str),
}

/// Returns the bytes of a datagram. Truncates a payload longer than [`MAX_PAYLOAD`].
pub fn encode(datagram: &Datagram) -> Vec<u8> {
    let payload = &datagram.payload[..datagram.payload.len().min(MAX_PAYLOAD)];
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let flags = flag(datagram.grh.is_some(), HAS_GRH)
        | flag(datagram.immediate.is_some(), HAS_IMMEDIATE)
        | flag(datagram.solicited, SOLICITED);
    let grh = datagram.grh.unwrap_or_default();
    let mut frame = Vec::with_capacity(HEADER + payload.len());
    frame.extend(MAGIC);
    frame.extend([VERSION, flags, datagram.sl, 0]);
    frame.extend(datagram.source_lid.to_be_bytes());
    frame.extend(datagram.destination_lid.to_be_bytes());
    frame.extend(datagram.source_qp.to_be_bytes());
    frame.extend(datagram.destination_qp.to_be_bytes());
    frame.extend(datagram.qkey.to_be_bytes());
    frame.extend(datagram.pkey.to_be_bytes());
    // At most MAX_PAYLOAD.
    frame.extend((payload.len() as u16).to_be_bytes());
    // In network byte order already.
    frame.extend(datagram.immediate.unwrap_or(0).to_ne_bytes());
    frame.extend(grh.source);
    frame.extend(grh.destination);
    frame.extend([grh.traffic_class, grh.hop_limit, 0, 0]);
    frame.extend(grh.flow_label.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Parses the bytes of a datagram, from an untrusted sender.
///
/// # Errors
/// If they are not exactly one frame.
pub fn parse(bytes: &[u8]) -> Result<Datagram, NotAFrame> {
    if !bytes.starts_with(&MAGIC) {
        return Err(NotAFrame::Foreign);
    }
    // Check the version before the length: another version's header may be shorter.
    match bytes.get(4) {
        Some(&VERSION) => {}
        Some(version) => return Err(NotAFrame::Version(*version)),
        None => return Err(NotAFrame::Length),
    }
    let (header, payload) = bytes
        .split_first_chunk::<HEADER>()
        .ok_or(NotAFrame::Length)?;
    let u16_at = |offset: usize| u16::from_be_bytes([header[offset], header[offset + 1]]);
    let four_at =
        |offset: usize| -> [u8; 4] { std::array::from_fn(|index| header[offset + index]) };
    let u32_at = |offset: usize| u32::from_be_bytes(four_at(offset));
    let sixteen_at =
        |offset: usize| -> [u8; 16] { std::array::from_fn(|index| header[offset + index]) };
    let field = |condition: bool, name| condition.then_some(()).ok_or(NotAFrame::Field(name));

    let flags = header[5];
    field(flags & !(HAS_GRH | HAS_IMMEDIATE | SOLICITED) == 0, "flags")?;
    field(header[6] <= 15, "service level")?;
    field(u32_at(12) <= MAX_QPN, "source queue pair")?;
    field(u32_at(16) <= MAX_QPN, "destination queue pair")?;
    field(u32_at(68) <= MAX_FLOW_LABEL, "flow label")?;
    if payload.len() > MAX_PAYLOAD || payload.len() != usize::from(u16_at(26)) {
        return Err(NotAFrame::Length);
    }
    Ok(Datagram {
        source_lid: u16_at(8),
        source_qp: u32_at(12),
        destination_lid: u16_at(10),
        destination_qp: u32_at(16),
        grh: (flags & HAS_GRH != 0).then(|| GlobalRouteHeader {
            source: sixteen_at(32),
            destination: sixteen_at(48),
            traffic_class: header[64],
            flow_label: u32_at(68),
            hop_limit: header[65],
        }),
        qkey: u32_at(20),
        pkey: u16_at(24),
        sl: header[6],
        immediate: (flags & HAS_IMMEDIATE != 0).then(|| u32::from_ne_bytes(four_at(28))),
        solicited: flags & SOLICITED != 0,
        payload: payload.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Datagram {
        Datagram {
            source_lid: 0x0102,
            source_qp: 0x0003_0405,
            destination_lid: 0xc001,
            destination_qp: 0x00ff_ffff,
            grh: Some(GlobalRouteHeader {
                source: [0xfe; 16],
                destination: [0xff; 16],
                traffic_class: 6,
                flow_label: 0x000f_1234,
                hop_limit: 64,
            }),
            qkey: 0x8001_0000,
            pkey: 0xffff,
            sl: 15,
            immediate: Some(0x1122_3344_u32.to_be()),
            solicited: true,
            payload: b"hello".to_vec(),
        }
    }

    #[test]
    fn frames_go_both_ways() {
        let frame = encode(&full());
        assert_eq!(frame.len(), HEADER + 5);
        assert_eq!(frame[..8], [b'F', b'S', b'U', b'D', 1, 7, 15, 0]);
        assert_eq!(frame[8..12], [1, 2, 0xc0, 1]);
        assert_eq!(frame[26..32], [0, 5, 0x11, 0x22, 0x33, 0x44]);
        assert_eq!(parse(&frame), Ok(full()));
        let least = Datagram {
            payload: vec![7; MAX_PAYLOAD],
            ..Datagram::default()
        };
        let frame = encode(&least);
        assert_eq!(frame.len(), MAX_FRAME);
        assert_eq!(parse(&frame), Ok(least));
    }

    #[test]
    fn whatever_is_cut_is_no_frame() {
        let frame = encode(&full());
        for length in 0..frame.len() {
            assert!(parse(&frame[..length]).is_err(), "{length} bytes");
        }
        let longer = [&frame[..], &[0]].concat();
        assert_eq!(parse(&longer), Err(NotAFrame::Length));
        let too_long = Datagram {
            payload: vec![7; MAX_PAYLOAD],
            ..full()
        };
        let mut frame = [&encode(&too_long)[..], &[0]].concat();
        frame[26..28].copy_from_slice(&(MAX_PAYLOAD as u16 + 1).to_be_bytes());
        assert_eq!(parse(&frame), Err(NotAFrame::Length));
    }

    #[test]
    fn fields_are_checked() {
        for (offset, value, error) in [
            (0, b'X', NotAFrame::Foreign),
            (4, 2, NotAFrame::Version(2)),
            (5, 8, NotAFrame::Field("flags")),
            (6, 16, NotAFrame::Field("service level")),
            (12, 1, NotAFrame::Field("source queue pair")),
            (16, 1, NotAFrame::Field("destination queue pair")),
            (69, 0x10, NotAFrame::Field("flow label")),
        ] {
            let mut frame = encode(&full());
            frame[offset] = value;
            assert_eq!(parse(&frame), Err(error), "{offset}");
        }
        assert_eq!(parse(b"FSUD"), Err(NotAFrame::Length));
        assert_eq!(parse(b"FSUD\x02"), Err(NotAFrame::Version(2)));
    }

    /// Any byte is changed in any way: the frame is parsed or refused, and a parsed one encodes to the same
    /// bytes.
    #[test]
    fn no_byte_breaks_it() {
        let frame = encode(&full());
        for offset in 0..frame.len() {
            for value in 0..=u8::MAX {
                let mut changed = frame.clone();
                changed[offset] = value;
                if let Ok(datagram) = parse(&changed) {
                    assert_eq!(parse(&encode(&datagram)), Ok(datagram));
                }
            }
        }
    }
}
