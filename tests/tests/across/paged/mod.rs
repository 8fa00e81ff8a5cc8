//! The `paged` policy as programs see it: what it holds, what it gives back, and when it calls the driver.

mod addresses;
mod caches;
mod copies;
mod device;
mod ends;
mod faults;
mod held;
mod limits;
mod recorded;
mod settles;
mod sizes;
mod slack;
mod streams;
