//! Where sent datagrams go.

/// A UD datagram between queue pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// LID that sent it.
    pub source_lid: u16,
    /// GID that sent it.
    pub source_gid: [u8; 16],
    /// Queue pair that sent it.
    pub source_qp: u32,
    /// LID that it goes to; multicast from 0xC000 on.
    pub destination_lid: u16,
    /// GID that it goes to, when it carries a GRH.
    pub destination_gid: Option<[u8; 16]>,
    /// Queue pair that it goes to; 0xffffff for multicast.
    pub destination_qp: u32,
    /// Q_Key that it carries.
    pub qkey: u32,
    /// P_Key of the sender.
    pub pkey: u16,
    /// Service level.
    pub sl: u8,
    /// Immediate data, network byte order.
    pub immediate: Option<u32>,
    /// Whether the sender asked for a solicited event.
    pub solicited: bool,
    /// What it carries, without a GRH.
    pub payload: Vec<u8>,
}

/// Carries datagrams to other adapters. UD is unreliable: a send completes when the datagram is handed over, whatever
/// becomes of it.
pub trait DataPath: Send + Sync {
    /// Takes a datagram. Must not wait for its receiver.
    fn send(&self, datagram: Datagram);
}

/// Loses every datagram: sends complete, nothing arrives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl DataPath for Nowhere {
    fn send(&self, _datagram: Datagram) {}
}
