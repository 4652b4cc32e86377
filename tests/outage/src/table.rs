//! How often it happened.

use std::fmt;
use std::time::Duration;

use crate::fault::Fault;
use crate::lease::Overlap;
use crate::setup::Setup;

/// The trials of one configuration under one fault.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    trials: usize,
    doubles: usize,
    nearest: Option<Duration>,
}

/// The trials of all configurations under all faults.
#[derive(Clone, Debug, Default)]
pub struct Table([[Cell; Fault::ALL.len()]; Setup::ALL.len()]);

impl Table {
    /// Counts a trial.
    pub fn count(&mut self, setup: Setup, fault: Fault, overlap: Overlap) {
        let cell = &mut self.0[setup as usize][fault as usize];
        cell.trials += 1;
        match overlap {
            Overlap::Double => cell.doubles += 1,
            Overlap::None { gap } => cell.nearest = cell.nearest.into_iter().chain(gap).min(),
        }
    }

    /// What ought not to be: a double hold where there is protection, or none where there is not, which would
    /// say that the fault does no harm and the trials nothing.
    pub fn surprises(&self) -> Vec<String> {
        let mut surprises = Vec::new();
        for fault in Fault::ALL {
            if self.cell(Setup::Documented, fault).doubles > 0 {
                surprises.push(format!("{fault}: a double hold in spite of the protection"));
            }
            if self.cell(Setup::Scripts, fault).doubles == 0 {
                surprises
                    .push(format!("{fault}: no double hold without protection, so the fault does not bite"));
            }
        }
        surprises
    }

    fn cell(&self, setup: Setup, fault: Fault) -> Cell {
        self.0[setup as usize][fault as usize]
    }
}

/// In Markdown: a line for each fault, a column for each configuration.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| fault |")?;
        Setup::ALL.iter().try_for_each(|setup| write!(f, " {setup} |"))?;
        write!(f, "\n|---|")?;
        Setup::ALL.iter().try_for_each(|_| write!(f, "---|"))?;
        for fault in Fault::ALL {
            write!(f, "\n| {fault} |")?;
            Setup::ALL.iter().try_for_each(|setup| write!(f, " {} |", self.cell(*setup, fault)))?;
        }
        Ok(())
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {}", self.doubles, self.trials)?;
        match self.nearest {
            Some(nearest) if self.doubles == 0 => write!(f, " (nearest: {} ms)", nearest.as_millis()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_tells_what_ought_not_to_be() {
        let mut table = Table::default();
        for fault in Fault::ALL {
            table.count(Setup::Scripts, fault, Overlap::Double);
            table.count(Setup::Documented, fault, Overlap::None { gap: Some(Duration::from_millis(7)) });
        }
        assert_eq!(table.surprises(), Vec::<String>::new());
        assert!(table.to_string().contains("| 1 / 1 | 0 / 0 | 0 / 1 (nearest: 7 ms) |"), "{table}");
        table.count(Setup::Documented, Fault::Crash, Overlap::Double);
        assert_eq!(table.surprises().len(), 1);
        assert_eq!(Table::default().surprises().len(), Fault::ALL.len());
    }
}
