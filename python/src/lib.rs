//! The client of a Forebay server as a Python module, `forebay._forebay`: [`forebay_client`] with the types of Python around it.
//!
//! It decides nothing. Each call that may wait lets other threads of Python run meanwhile, and takes and gives bytes by the buffer protocol. What a caller sees of
//! it is documented where Python looks for it: on the classes and methods, and in `forebay/_forebay.pyi`.

mod buffer;
mod client;
mod errors;
mod events;
mod files;
mod reader;
mod runs;
mod shared;
mod status;
mod subscription;
mod writer;

use pyo3::prelude::*;

#[pymodule]
fn _forebay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<client::Client>()?;
    module.add_class::<subscription::Subscription>()?;
    module.add_class::<events::PutResult>()?;
    module.add_class::<events::Fragment>()?;
    module.add_class::<events::Event>()?;
    module.add_class::<events::LeasedEvent>()?;
    module.add_class::<events::Lease>()?;
    module.add_class::<events::AcceptedEvent>()?;
    module.add_class::<events::AcceptedPage>()?;
    module.add_class::<files::Files>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<status::Status>()?;
    module.add_class::<buffer::Payload>()
}
