//! Explains why a machine refuses namespaces, and how to allow them.

use std::fs;
use std::path::Path;

use rustix::process::geteuid;

/// The machine's settings for namespaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    pub root: bool,
    /// kernel.apparmor_restrict_unprivileged_userns, Ubuntu's since 23.10.
    pub apparmor_restricts: bool,
    /// kernel.unprivileged_userns_clone is 0, Debian's and Arch's.
    pub clone_is_off: bool,
    /// user.max_user_namespaces is 0.
    pub no_user_namespaces: bool,
    /// user.max_net_namespaces is 0.
    pub no_net_namespaces: bool,
    /// user.max_mnt_namespaces is 0.
    pub no_mount_namespaces: bool,
    /// A container, or another filter of system calls.
    pub contained: bool,
}

impl Facts {
    pub fn of_this_machine() -> Self {
        let is = |name: &str, value: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys").join(name));
            text.is_ok_and(|text| text.trim() == value)
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let filtered = status.lines().any(|line| line == "Seccomp:\t2");
        let marks = ["/.dockerenv", "/run/.containerenv"];
        Self {
            root: geteuid().is_root(),
            apparmor_restricts: is("kernel/apparmor_restrict_unprivileged_userns", "1"),
            clone_is_off: is("kernel/unprivileged_userns_clone", "0"),
            no_user_namespaces: is("user/max_user_namespaces", "0"),
            no_net_namespaces: is("user/max_net_namespaces", "0"),
            no_mount_namespaces: is("user/max_mnt_namespaces", "0"),
            contained: filtered || marks.iter().any(|mark| Path::new(mark).exists()),
        }
    }

    /// Returns the advice. If no kernel setting explains the refusal, it assumes a container.
    pub fn advice(self) -> String {
        let mut advice: Vec<&str> = Vec::new();
        if self.no_net_namespaces {
            advice.push(
                "network namespaces are switched off; as root: sysctl -w user.max_net_namespaces=1024",
            );
        }
        if self.no_mount_namespaces {
            advice.push(
                "mount namespaces are switched off; as root: sysctl -w user.max_mnt_namespaces=1024",
            );
        }
        if self.no_user_namespaces {
            advice.push(
                "user namespaces are switched off; run as root, or as root: sysctl -w user.max_user_namespaces=1024",
            );
        }
        if self.clone_is_off && !self.root {
            advice.push(
                "only root may create user namespaces; run as root, or as root: sysctl -w kernel.unprivileged_userns_clone=1",
            );
        }
        if self.apparmor_restricts && !self.root {
            advice.push(
                "AppArmor restricts user namespaces; run as root, or as root: \
                 sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
            );
        }
        if advice.is_empty() && self.contained {
            advice.push(
                "the container or its seccomp filter lacks the permission; start it with docker run --cap-add SYS_ADMIN \
                 --security-opt apparmor=unconfined, or podman run --cap-add SYS_ADMIN",
            );
        }
        if advice.is_empty() {
            advice.push("it needs CAP_SYS_ADMIN or user namespaces, see user_namespaces(7)");
        }
        advice.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_setting() {
        let user = Facts::default();
        for (facts, setting) in [
            (
                Facts {
                    apparmor_restricts: true,
                    ..user
                },
                "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            (
                Facts {
                    clone_is_off: true,
                    ..user
                },
                "sysctl -w kernel.unprivileged_userns_clone=1",
            ),
            (
                Facts {
                    no_user_namespaces: true,
                    ..user
                },
                "sysctl -w user.max_user_namespaces=",
            ),
            (
                Facts {
                    no_net_namespaces: true,
                    ..user
                },
                "sysctl -w user.max_net_namespaces=",
            ),
            (
                Facts {
                    contained: true,
                    ..user
                },
                "docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined",
            ),
            (
                Facts {
                    contained: true,
                    ..user
                },
                "podman run --cap-add SYS_ADMIN",
            ),
            (user, "user_namespaces(7)"),
        ] {
            let advice = facts.advice();
            assert!(advice.contains(setting), "{facts:?}: {advice}");
        }
    }

    #[test]
    fn root_is_not_told_of_what_concerns_users() {
        let advice = Facts {
            root: true,
            apparmor_restricts: true,
            clone_is_off: true,
            contained: true,
            ..Facts::default()
        }
        .advice();
        assert!(!advice.contains("sysctl"), "{advice}");
        assert!(advice.contains("--cap-add"), "{advice}");
    }
}
