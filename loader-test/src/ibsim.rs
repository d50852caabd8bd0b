//! The fabric simulator and its console.

use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Mutex};

use crate::error::{Context, Error, Result};
use crate::fabric::{Fabric, Node};
use crate::log::Mark;
use crate::machine::Machine;
use crate::process::{Launch, Process, lock};
use crate::record::Lid;
use crate::wait;

/// The console's prompt of a running network.
const PROMPT: &str = "sim> ";

/// Size of ibsim's command buffer, including the terminator.
const LONGEST_COMMAND: usize = 127;

/// The value of IBSIM_SOCKNAME: ibsim's sockets are abstract, so the network namespace separates runs.
pub const SOCKET_NAME: &str = "rig";

/// Maximum number of programs at ibsim.
pub const MOST_CLIENTS: usize = 10;

/// A running ibsim.
#[derive(Debug)]
pub struct Ibsim {
    process: Process,
    console: Mutex<ChildStdin>,
}

/// A program attached to the fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its number in ibsim, which ibsim puts into the highest 16 bits of the transaction ID of each MAD from the program.
    pub number: u16,
    /// Its process id.
    pub pid: i32,
    /// Its node.
    pub node: String,
}

impl Ibsim {
    /// Starts the fabric of the file `net`.
    pub fn start(machine: &Arc<Machine>, net: &Path, directory: &Path) -> Result<Self> {
        let process = Launch::new(machine, "ibsim", &machine.programs.ibsim, directory)
            .args(["-s".as_ref(), net.as_os_str()])
            .env("IBSIM_SOCKNAME", SOCKET_NAME)
            .stdin(Stdio::piped())
            .separate_errors()
            .start()?;
        let console = process
            .take_stdin()
            .ok_or_else(|| Error::protocol("ibsim", "started without a console"))?;
        let ibsim = Self {
            process,
            console: Mutex::new(console),
        };
        match ibsim.answer(Mark::default()) {
            Ok(_) => Ok(ibsim),
            Err(Error::Ended { tail, .. }) => Err(Error::Input(format!(
                "ibsim cannot simulate the fabric of {}:\n{tail}",
                net.display()
            ))),
            Err(error) => Err(error),
        }
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Returns the console's output after `mark`, up to the next prompt.
    fn answer(&self, mark: Mark) -> Result<String> {
        wait::until("an answer of ibsim's console", wait::PATIENCE, || {
            let text = self.process.output().since(mark)?;
            if let Some(answer) = text.strip_suffix(PROMPT) {
                return Ok(Some(answer.to_owned()));
            }
            self.process.check()?;
            Ok(None)
        })
    }

    /// Sends a command to the console and returns the output. `?` lists the commands.
    pub fn command(&self, command: &str) -> Result<String> {
        if command.len() >= LONGEST_COMMAND || command.contains('\n') {
            return Err(Error::Input(format!(
                "an ibsim command is one line of at most {LONGEST_COMMAND} bytes, not: {command}"
            )));
        }
        let mut console = lock(&self.console);
        let mark = self.process.output().end();
        writeln!(console, "{command}").context(|| format!("give ibsim the command {command}"))?;
        self.answer(mark)
    }

    /// Sends a command whose only possible output is an error message.
    fn order(&self, command: &str) -> Result<()> {
        let answer = self.command(command)?;
        if answer.is_empty() {
            Ok(())
        } else {
            Err(Error::protocol(
                "ibsim",
                format!("{command}: {}", answer.trim()),
            ))
        }
    }

    /// Returns the current fabric.
    pub fn fabric(&self) -> Result<Fabric> {
        Fabric::parse(&self.command("Dump")?)
    }

    /// Returns the current state of a node.
    pub fn node(&self, name: &str) -> Result<Node> {
        let mut fabric = Fabric::parse(&self.command(&format!("Dump \"{name}\""))?)?;
        match fabric.nodes.pop() {
            Some(node) if fabric.nodes.is_empty() => Ok(node),
            _ => Err(Error::Input(format!("the fabric has no node {name}"))),
        }
    }

    /// Pulls the cable of a port. The switch at its other end notifies the subnet manager.
    pub fn unlink(&self, node: &str, port: u8) -> Result<()> {
        self.order(&format!("Unlink \"{node}\"[{port}]"))
    }

    /// Puts the cable of a port back.
    pub fn relink(&self, node: &str, port: u8) -> Result<()> {
        self.order(&format!("ReLink \"{node}\"[{port}]"))
    }

    /// Changes the base LID of a port without the subnet manager.
    pub fn set_base_lid(&self, node: &str, port: u8, lid: Lid) -> Result<()> {
        self.order(&format!("Baselid \"{node}\"[{port}] {lid}"))
    }

    /// Returns the programs that ibsim lists as attached, including killed ones.
    pub fn clients(&self) -> Result<Vec<Client>> {
        let answer = self.command("Attached")?;
        answer
            .lines()
            .map(|line| {
                parse_client(line)
                    .ok_or_else(|| Error::protocol("ibsim", format!("Attached prints: {line}")))
            })
            .collect()
    }

    /// Frees the places of killed programs, which ibsim does not notice by itself; it fails with one program too many.
    pub fn drop_dead_clients(&self) -> Result<()> {
        for client in self.clients()? {
            if !Path::new(&format!("/proc/{}", client.pid)).exists() {
                let command = format!("X {}", client.number);
                let answer = self.command(&command)?;
                // ibsim may drop a dead client by itself at any moment, when a write to it fails.
                if !answer.is_empty() && !answer.contains("bad clientid") {
                    return Err(Error::protocol(
                        "ibsim",
                        format!("{command}: {}", answer.trim()),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// `Client 0: pid 8409 connected at "Hca1" port 0x100001, lid 1, qp 0 SM`
fn parse_client(line: &str) -> Option<Client> {
    let (number, rest) = line.strip_prefix("Client ")?.split_once(": pid ")?;
    let (pid, rest) = rest.split_once(" connected at \"")?;
    let (node, _) = rest.rsplit_once("\" port ")?;
    Some(Client {
        number: number.parse().ok()?,
        pid: pid.parse().ok()?,
        node: node.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attached_client_is_read() {
        let line = "Client 3: pid 8409 connected at \"Hca \"1\"\" port 0x100001, lid 1, qp 0 SM";
        let client = parse_client(line).unwrap();
        assert_eq!(
            (client.number, client.pid, client.node.as_str()),
            (3, 8409, "Hca \"1\"")
        );
    }
}
