//! What boots are grouped by.

use std::{fmt, str::FromStr};

use super::Recovery;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// The kernel's release.
    Kernel,
    /// The runtime and its version.
    Runtime,
    /// The kubelet and its version.
    Kubelet,
    /// The value of the label with this key.
    Label(String),
}

impl Grouping {
    /// Returns the group of a boot, if it has the attribute.
    #[must_use]
    pub fn of<'a>(&self, recovery: &'a Recovery) -> Option<&'a str> {
        let boot = recovery.boot.as_ref();
        match self {
            Self::Kernel => boot.map(|boot| boot.kernel.as_str()).filter(|kernel| !kernel.is_empty()),
            Self::Runtime => recovery.runtime_program.as_deref(),
            Self::Kubelet => recovery.kubelet_program.as_deref(),
            Self::Label(key) => boot?.labels.get(key).map(String::as_str),
        }
    }
}

impl FromStr for Grouping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "kernel" => Ok(Self::Kernel),
            "runtime" => Ok(Self::Runtime),
            "kubelet" => Ok(Self::Kubelet),
            other => match other.strip_prefix("label:") {
                Some(key) if !key.is_empty() => Ok(Self::Label(key.to_owned())),
                Some(_) | None => Err(format!("{text:?} is none of kernel, runtime, kubelet, label:KEY")),
            },
        }
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => f.write_str("kernel"),
            Self::Runtime => f.write_str("runtime"),
            Self::Kubelet => f.write_str("kubelet"),
            Self::Label(key) => write!(f, "label:{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Grouping;
    use crate::model::recovery::{BootRead, Recovery};

    #[test]
    fn a_grouping_is_what_it_is_called() {
        for text in ["kernel", "runtime", "kubelet", "label:edge", "label:a:b"] {
            assert_eq!(text.parse::<Grouping>().expect(text).to_string(), text);
        }
        for bad in ["", "label:", "label", "edge", "kernels"] {
            bad.parse::<Grouping>().expect_err(bad);
        }
    }

    #[test]
    fn a_boot_is_in_the_group_of_what_is_known_of_it() {
        let of = |text: &str, recovery: &Recovery| {
            text.parse::<Grouping>().expect(text).of(recovery).map(str::to_owned)
        };
        let all = ["kernel", "runtime", "kubelet", "label:edge"];
        let bare = Recovery { boot: Some(BootRead::default()), ..Recovery::default() };
        for unknown in [Recovery::default(), bare] {
            assert_eq!(all.map(|text| of(text, &unknown)), [const { None }; 4]);
        }
        let labels = [("edge".to_owned(), "connected".to_owned())].into();
        let recovery = Recovery {
            boot: Some(BootRead { kernel: "6.1".to_owned(), labels, ..BootRead::default() }),
            runtime_program: Some("containerd 2.1.4".to_owned()),
            kubelet_program: Some("kubelet 1.33.1".to_owned()),
            ..Recovery::default()
        };
        let groups = ["6.1", "containerd 2.1.4", "kubelet 1.33.1", "connected"];
        assert_eq!(all.map(|text| of(text, &recovery)), groups.map(|name| Some(name.to_owned())));
        assert_eq!(of("label:other", &recovery), None);
    }
}
