//! Turns allowed names into addresses of 198.18.0.0/15 that are local to one sandbox, and back.
//! It refuses to know which names are allowed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use policy::host::Name;

/// The first address that is given.
const FIRST: u32 = 0xc612_0001;
/// The last one.
const LAST: u32 = 0xc613_fffe;

/// The addresses of one sandbox. An address keeps its name for as long as the sandbox stands.
#[derive(Debug, Default)]
pub struct Synthetic {
    by_name: HashMap<Name, Ipv4Addr>,
    by_address: Vec<Name>,
}

impl Synthetic {
    /// The address of a name, given at the first question; `None` when all are given.
    pub fn address(&mut self, name: &Name) -> Option<Ipv4Addr> {
        if let Some(address) = self.by_name.get(name) {
            return Some(*address);
        }
        let next = u32::try_from(self.by_address.len()).ok().and_then(|count| FIRST.checked_add(count));
        let address = Ipv4Addr::from_bits(next.filter(|next| *next <= LAST)?);
        self.by_address.push(name.clone());
        self.by_name.insert(name.clone(), address);
        Some(address)
    }

    /// The name to which an address was given.
    pub fn name(&self, address: Ipv4Addr) -> Option<&Name> {
        let place = address.to_bits().checked_sub(FIRST)?;
        self.by_address.get(usize::try_from(place).ok()?)
    }
}

/// Whether an address is one of those that are given to names.
pub fn is_synthetic(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if matches!(address.octets(), [198, 18..=19, ..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_the_address_its_name() {
        let mut synthetic = Synthetic::default();
        let (a, b) = (Name::parse("a.example").unwrap(), Name::parse("b.example").unwrap());
        let first = synthetic.address(&a).unwrap();
        assert_eq!(first, Ipv4Addr::new(198, 18, 0, 1));
        assert_ne!(synthetic.address(&b).unwrap(), first);
        assert_eq!(synthetic.address(&a), Some(first));
        assert_eq!(synthetic.name(first), Some(&a));
        assert_eq!(synthetic.name(Ipv4Addr::new(198, 18, 0, 3)), None);
        assert_eq!(synthetic.name(Ipv4Addr::new(10, 0, 0, 1)), None);
        assert!(is_synthetic(first.into()) && !is_synthetic([198, 20, 0, 1].into()));
    }
}
