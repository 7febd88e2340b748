//! Turns what operators ask of a run into a record that is written before it takes effect (contract §7.1).
//! It refuses to know what a run does with it.

pub mod book;
pub mod input;
pub mod ledger;
pub mod owed;
pub mod wire;

pub use book::{Admission, Book, Refusal, Settlement};
pub use input::{Budget, Ceiling, Command, Fields, Input, InputError, Key};
pub use ledger::{Admitted, Ledger, LedgerError};
pub use owed::{Owed, Settled, grant_key, owed};
pub use wire::{Line, heard, told};
