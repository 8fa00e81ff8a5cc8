//! The sources: the rules of the repository, and the list of faults to plant. These tests run nothing of the library,
//! so they are a program of their own, which planted faults leave out.

mod mutants;
mod rules;
