//! Asks for a certain service level towards one vendor's adapters, and for any path if the SA does not grant it.
//!
//! In ibacm_opts.cfg, for service level 3 towards adapters whose port GUID begins with 0x0002c9:
//!
//!     provider by-vendor default
//!     by_vendor_sl 3
//!     by_vendor_oui 0002c9

use acm_prov_api::prelude::*;

/// The provider.
pub struct ByVendor {
    sl: Option<u8>,
    oui: Option<u32>,
}

impl ByVendor {
    /// Whether the vendor made the port's adapter: its port GUID begins with the vendor's OUI, three bytes.
    fn made(&self, gid: Gid) -> bool {
        self.oui == Some((gid.interface_id() >> 40) as u32)
    }
}

impl Policy for ByVendor {
    const NAME: &CStr = c"by-vendor";

    fn read(options: &Options) -> Self {
        let sl = options
            .named("by_vendor_sl")
            .help("service level to ask for towards the vendor's adapters")
            .optional_number(0..=15);
        let oui = options
            .named("by_vendor_oui")
            .help("the vendor's OUI, the first three bytes of its port GUIDs")
            .optional("six hexadecimal digits", |text| {
                let oui = u32::from_str_radix(text, 16).ok();
                oui.filter(|_| text.len() == 6)
            });
        options.report_unknown("by_vendor_");
        Self { sl, oui }
    }

    fn alternatives(&self, query: &PathQuery) -> Alternatives {
        match (self.sl, query.target()) {
            (Some(sl), Ok(Target::Gid(gid))) if self.made(gid) => {
                Constraints::new().sl(sl).or(Constraints::new())
            }
            _ => Alternatives::any(),
        }
    }
}

export_policy!(ByVendor);
