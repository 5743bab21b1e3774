//! The door of a source: where a destination can fetch its files itself.

use forebay_mover::Name;
use forebay_mover::custody::Failure;
use forebay_mover::endpoint;

use crate::webdav::Base;
use crate::{Access, Address, OpenError, Scheme, Secret};

/// A directory of a server, by which the files of a source can be fetched.
#[derive(Debug)]
pub struct Door {
    address: Address,
    web: Option<Base>,
    token: Option<Secret>,
}

impl Door {
    /// A door with this address; the token file of `access` is for those who fetch there.
    ///
    /// # Errors
    /// An address with no host, a token that cannot be read, or one that nobody shows to XRootD.
    pub fn new(address: &Address, access: &Access) -> Result<Door, OpenError> {
        let token = access.token_file.clone().map(Secret::new);
        let web = match (address.scheme(), &token) {
            (Scheme::Web, _) => Some(Base::of(address)?),
            (Scheme::XRootD, None) => None,
            (Scheme::XRootD, Some(_)) => {
                return Err(OpenError::Access(
                    "XRootD passes no token on to who fetches a file; leave it out, or give an https:// door"
                        .to_owned(),
                ));
            }
            (Scheme::S3, _) => {
                return Err(OpenError::Access(
                    "nothing fetches files from S3 by itself; give a door root://HOST/PATH or https://HOST/PATH"
                        .to_owned(),
                ));
            }
        };
        if let Some(token) = &token {
            token.get()?;
        }
        Ok(Door { address: address.clone(), web, token })
    }

    /// Whether a destination with this address fetches by it.
    pub fn leads_to(&self, destination: &Address) -> bool {
        self.address.scheme() == destination.scheme()
    }
}

impl endpoint::Door for Door {
    fn address_of(&self, name: &Name) -> String {
        match &self.web {
            Some(base) => base.uri(&base.path_of(name)).to_string(),
            None => {
                let (scheme, host, directory) = (self.address.scheme_name(), self.address.host(), self.address.path());
                let slash = if directory.is_empty() { "" } else { "/" };
                format!("{scheme}://{host}//{directory}{slash}{name}")
            }
        }
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        let token = self.token.as_ref().map(Secret::get).transpose();
        token.map_err(|error| Failure::NotNow(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use forebay_mover::endpoint::Door as _;

    use super::*;

    #[test]
    fn a_door_has_an_address_for_each_name_and_fits_destinations_of_its_kind() {
        let door = |text: &str| Door::new(&text.parse().expect("an address"), &Access::default());
        let name = "run7/a b.raw".parse().expect("a name");
        let web = door("https://daq01:1094/data").expect("a door");
        assert_eq!(web.address_of(&name), "https://daq01:1094/data/run7/a%20b.raw");
        let root = door("root://daq01").expect("a door");
        assert_eq!(root.address_of(&name), "root://daq01//run7/a b.raw");
        let to = |text: &str| text.parse().expect("an address");
        assert!(web.leads_to(&to("http://tape/x")) && !web.leads_to(&to("root://tape/x")));
        assert!(root.leads_to(&to("roots://tape/x")) && !root.leads_to(&to("s3://tape/x")));
        assert!(door("s3://bucket").is_err());
    }
}
