//! The files of `/sys` and `/dev` that libibumad and libibverbs read.

use std::fs;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub struct Port {
    pub link_layer: &'static str,
    pub state: (u32, &'static str),
    pub physical_state: (u32, &'static str),
    pub smi_disabled: bool,
    /// Whether the port has a MAD file.
    pub umad: bool,
}

pub const ACTIVE: Port = Port {
    link_layer: "InfiniBand",
    state: (4, "ACTIVE"),
    physical_state: (5, "LinkUp"),
    smi_disabled: false,
    umad: true,
};
pub const LINK_UP: Port = Port {
    state: (2, "INIT"),
    ..ACTIVE
};
pub const POLLING: Port = Port {
    state: (1, "DOWN"),
    physical_state: (2, "Polling"),
    ..ACTIVE
};
pub const DISABLED: Port = Port {
    state: (1, "DOWN"),
    physical_state: (3, "Disabled"),
    ..ACTIVE
};

impl Port {
    pub const fn without_smi(self) -> Self {
        Self {
            smi_disabled: true,
            ..self
        }
    }

    pub const fn on_ethernet(self) -> Self {
        Self {
            link_layer: "Ethernet",
            ..self
        }
    }

    pub const fn without_umad(self) -> Self {
        Self {
            umad: false,
            ..self
        }
    }
}

#[derive(Clone, Debug)]
pub struct Device {
    pub name: &'static str,
    /// 1 a channel adapter, 2 a switch.
    pub node_type: u32,
    /// Numbered from 1; a switch's from 0.
    pub ports: Vec<Port>,
}

impl Device {
    pub fn new(name: &'static str, ports: &[Port]) -> Self {
        Self {
            name,
            node_type: 1,
            ports: ports.into(),
        }
    }

    pub fn switch(name: &'static str, ports: &[Port]) -> Self {
        Self {
            node_type: 2,
            ..Self::new(name, ports)
        }
    }

    pub fn numbered(&self) -> impl Iterator<Item = (u8, &Port)> {
        (if self.node_type == 2 { 0.. } else { 1u8.. }).zip(&self.ports)
    }

    pub fn port(&self, number: u8) -> Option<&Port> {
        self.numbered()
            .find(|(at, _)| *at == number)
            .map(|(_, port)| port)
    }
}

#[derive(Clone, Debug)]
pub struct Tree {
    pub devices: Vec<Device>,
    /// Devices with a verbs file, by name, with the version of the driver's interface.
    pub verbs: Vec<(&'static str, u32)>,
    /// ib_uverbs's interface version; `None` without the module.
    pub verbs_abi_version: Option<u32>,
    /// ib_umad's interface version; `None` without the module.
    pub abi_version: Option<u32>,
}

impl Tree {
    pub fn new(devices: impl Into<Vec<Device>>) -> Self {
        Self {
            devices: devices.into(),
            verbs: Vec::new(),
            verbs_abi_version: None,
            abi_version: Some(5),
        }
    }

    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    pub fn write(&self, root: &Path) {
        let class = root.join("sys/class");
        for folder in ["infiniband", "infiniband_mad"] {
            fs::create_dir_all(class.join(folder)).unwrap();
        }
        fs::create_dir_all(root.join("dev/infiniband")).unwrap();
        fs::write(root.join("dev/null"), "").unwrap();
        if let Some(version) = self.abi_version {
            put(&class.join("infiniband_mad"), "abi_version", version);
        }
        if let Some(version) = self.verbs_abi_version {
            put(&class.join("infiniband_verbs"), "abi_version", version);
        }
        for (index, (name, version)) in self.verbs.iter().enumerate() {
            let folder = class.join(format!("infiniband_verbs/uverbs{index}"));
            put(&folder, "ibdev", name);
            put(&folder, "abi_version", version);
            put(&folder, "dev", format!("231:{}", 192 + index));
            put(&root.join("dev/infiniband"), &format!("uverbs{index}"), "");
        }
        let mut umad = 0;
        for (index, device) in self.devices.iter().enumerate() {
            let folder = class.join("infiniband").join(device.name);
            let guid = format!("0002:c903:0000:{index:04x}");
            put(&folder, "node_type", format!("{}: CA", device.node_type));
            put(&folder, "node_guid", &guid);
            put(&folder, "sys_image_guid", &guid);
            put(&folder, "hca_type", "made up");
            for (number, port) in device.numbered() {
                let folder = folder.join("ports").join(number.to_string());
                put(&folder, "lid", "0x1");
                put(&folder, "lid_mask_count", "0");
                put(&folder, "sm_lid", "0x1");
                put(&folder, "sm_sl", "0");
                put(
                    &folder,
                    "state",
                    format!("{}: {}", port.state.0, port.state.1),
                );
                put(
                    &folder,
                    "phys_state",
                    format!("{}: {}", port.physical_state.0, port.physical_state.1),
                );
                put(&folder, "rate", "10 Gb/sec (4X SDR)");
                put(
                    &folder,
                    "cap_mask",
                    if port.smi_disabled {
                        "0x02514c68"
                    } else {
                        "0x02514868"
                    },
                );
                put(&folder, "link_layer", port.link_layer);
                put(&folder, "gids/0", format!("fe80:0000:0000:0000:{guid}"));
                put(&folder, "pkeys/0", "0xffff");
                if port.umad {
                    let folder = class.join(format!("infiniband_mad/umad{umad}"));
                    put(&folder, "ibdev", device.name);
                    put(&folder, "port", number);
                    put(&root.join("dev/infiniband"), &format!("umad{umad}"), "");
                    umad += 1;
                }
            }
        }
    }
}

/// Writes a file as sysfs does: one line.
fn put(folder: &Path, name: &str, content: impl ToString) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content.to_string() + "\n").unwrap();
}
