//! VMs and microguests of a lab.

use super::Lab;
use super::extended_image::boot_lines;
use crate::machine::{Command, Doc};
use crate::reason::{Measured, NotMeasured, require};

/// Image with the oldest kernel.
pub const OLDEST: &str = "debian-6.1";
/// Image with the newest kernel of this Debian release and its backports.
pub const NEWEST: &str = "debian-6.12";

impl Lab<'_> {
    /// Creates a VM from the text of its file and starts it; waits for its agent.
    pub fn start_vm(&mut self, name: &str, file: &str) -> Measured<()> {
        self.create_vm(name, file)?;
        self.taut(format!("vm start --wait {name}")).map(drop)
    }

    /// Creates a VM from the text of its file.
    pub fn create_vm(&mut self, name: &str, file: &str) -> Measured<()> {
        let path = self.daemon()?.folder.join(format!("{name}.toml"));
        self.machine.write(&path, file)?;
        self.taut(format!("vm create -f {} --name {name}", path.display())).map(drop)
    }

    /// Boots a VM directly with an image, on the port group `lan`. `more` are lines for its file,
    /// before the tables.
    pub fn vm(&mut self, name: &str, image: &str, ip: &str, more: &str) -> Measured<()> {
        let boot = self.boot_of(image)?;
        self.start_vm(name, &format!("memory = \"128MiB\"\n{more}\n{boot}{}", nic(ip)))
    }

    /// Starts a microguest on the port group `lan`. `more` are lines for its file, before the
    /// tables.
    pub fn micro(&mut self, name: &str, ip: &str, more: &str) -> Measured<()> {
        self.start_vm(name, &format!("kind = \"micro\"\nmemory = \"64MiB\"\n{more}\n{}", nic(ip)))
    }

    /// Lines of a VM's file that boot an image directly. Fails if the image is not made, or has
    /// another build of the agent than the programs: figures of two builds say nothing about
    /// either.
    pub fn boot_of(&mut self, image: &str) -> Measured<String> {
        let folder = self.setup.images.join(image);
        if !self.machine.exists(&folder.join("info.json")) {
            return Err(NotMeasured::because(format!("the image {image} is not made: make images")));
        }
        let agents = [&self.setup.programs, &self.setup.images].map(|folder| folder.join("taut-guest"));
        let compare = Command::new("cmp").arg(&agents[0]).arg(&agents[1]);
        let why =
            format!("{} and {} are of two builds: make images", agents[0].display(), agents[1].display());
        require(self.machine.run(&compare)?.is_success(), why)?;
        Ok(boot_lines(&folder))
    }

    /// Version of an image's kernel.
    pub fn kernel_of(&mut self, image: &str) -> Measured<String> {
        let path = self.setup.images.join(image).join("info.json");
        self.machine.read(&path)?.json()?.text("kernel")
    }

    /// Starts a daemon with two Debian guests on the port group `lan`: alpha (10.80.0.1) with the
    /// oldest kernel, beta (10.80.0.2) with the newest.
    pub fn two_guests(&mut self) -> Measured<()> {
        self.start_lan(super::DaemonOptions::default())?;
        self.vm("alpha", OLDEST, "10.80.0.1", "")?;
        self.vm("beta", NEWEST, "10.80.0.2", "")
    }

    /// `taut vm show`.
    pub fn vm_show(&mut self, name: &str) -> Measured<Doc> {
        self.taut_json(format!("vm show {name}"))
    }

    /// Process ID of a VM.
    pub fn vm_pid(&mut self, name: &str) -> Measured<u32> {
        Ok(u32::try_from(self.vm_show(name)?.count("status.pid")?)?)
    }

    /// Socket of a VM's agent.
    pub fn vm_agent(&mut self, name: &str) -> Measured<String> {
        self.vm_show(name)?.text("status.agent_socket")
    }

    /// Words of a VM's command line.
    pub(super) fn command_line(&mut self, name: &str) -> Measured<Vec<String>> {
        let pid = self.vm_pid(name)?;
        Ok(self.read(format!("/proc/{pid}/cmdline"))?.parts('\0'))
    }
}

fn nic(ip: &str) -> String {
    format!("[[nic]]\nportgroup = \"lan\"\nip = \"{ip}/24\"\n")
}
