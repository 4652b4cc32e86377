//! Function pointers that the server fills in.

/// A function that [`super::load::missing_functions`] found present at load.
#[inline(always)]
pub fn present<F>(function: Option<F>) -> F {
    match function {
        Some(function) => function,
        None => absent(),
    }
}

#[cold]
fn absent() -> ! {
    unreachable!("the module does not load where this server function is missing")
}
